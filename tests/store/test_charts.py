"""Charts keep what matters in sight, and draw outliers at their edge."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from store.explore.page import charts
from store.explore.page.charts import Axis, fit_scale
from store.explore.page.render import read_style
from store.explore.page.tables import TONES
from store.explore.server.app import draw_result

ROOT = Path(__file__).parents[2]


def draw(*series: charts.Series) -> str:
    axis = Axis(label="ms per call", scale="log")
    return charts.draw_points("any", list(series), Axis(label="block"), axis)


def test_an_outlier_is_drawn_at_the_edge() -> None:
    values = [1 + i / 100 for i in range(20)]
    one = charts.Series(label="kernel", x=[float(i) for i in range(21)], y=[*values, 400.0])
    assert draw(one).count('class="far"') == 1


def test_a_fast_kernel_among_slow_baselines_is_no_outlier() -> None:
    blocks = [float(i) for i in range(20)]
    slow = [
        charts.Series(label=name, x=blocks, y=[2.7 + i / 1000 for i in range(20)])
        for name in ("eager", "compile", "cuda_graph", "cudnn")
    ]
    fast = charts.Series(label="kernel", x=blocks, y=[0.056 + i / 10_000 for i in range(20)])
    assert 'class="far"' not in draw(fast, *slow)
    assert 'class="far"' in draw(*slow, charts.Series(label="one", x=[1.0], y=[0.056]))


def test_an_axis_of_speedups_has_ticks_over_its_whole_range() -> None:
    for values in ([0.9, 3.3], [0.7, 1.4], [0.98, 1.02], [0.1, 40], [0.5, 6]):
        ticks = [
            value for value, _ in fit_scale(Axis(label="speedup", scale="ratio"), values).ticks
        ]
        assert len(ticks) >= 3, values
        assert 1 in ticks
        assert ticks[-1] > max(values) / 4.1, values
        assert ticks[0] < min(values) * 4.1, values


def luminance(color: str) -> float:
    """Return how light a color is in greyscale (WCAG 2)."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colors (WCAG 2)."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_meanings_differ_from_the_ground_and_in_greyscale() -> None:
    light, dark = read_style("colours").split("@media")
    for sheet in (light, dark):
        colors = dict(re.findall(r"--(\w+): (#\w{6})", sheet))
        meant = {tone for tone in TONES.values() if tone not in ("plain",)}
        for tone in meant:
            assert contrast(colors[tone], colors["ground"]) >= 4.5, tone
        assert contrast(colors["plain"], colors["ground"]) >= 3
        own = [colors[tone] for tone in ("good", "cheat", "bad", "open", "plain")]
        for one, other in itertools.combinations(own, 2):
            assert contrast(one, other) > 1.08, (one, other)
    # Where they are close, their shapes are not.
    shapes = {tone: charts.SHAPES.get(tone) for tone in ("good", "cheat", "bad", "open", "plain")}
    assert len(set(shapes.values())) == len(shapes)


def test_claims_and_measurements_stand_in_a_square_with_one_scale() -> None:
    one = charts.Series(label="holds", x=[1.0, 8.0], y=[1.1, 2.0], tone="good")
    axis = Axis(label="speedup", scale="ratio")
    svg = charts.draw_points("claims", [one], axis, axis, square=True)
    (ends,) = re.findall(r'class="mark" fill="none" points="([^"]*)"', svg)
    assert ends == f"0.0,{charts.SQUARE:.1f} 1000.0,0.0", "the diagonal has 45 degrees"
    assert f'width="{charts.SQUARE}"' in charts.make_standalone(svg, "")


def test_the_console_draws_figures_and_never_ids_or_levels() -> None:
    rows = [
        {"task_id": "ab" * 32, "level": at, "suite": f"s{at}", "n": 10 * at, "kernel_ms": 1.5 * at}
        for at in range(1, 5)
    ]
    told, svg = draw_result(rows)
    assert told == "kernel ms of 4 rows. Not drawn: task_id, n."
    assert "1, s1" in svg, "the labels of bars tell rows apart"
    told, svg = draw_result([{"level": at, "problem_id": at} for at in range(5)])
    assert told.startswith("Nothing is drawn")
    assert svg == ""
    told, svg = draw_result([{"step": at, "speedup": 1.0 + at, "reward": 0.1} for at in range(5)])
    assert told == "speedup \u00d7 of 5 rows. Not drawn: reward."
    assert svg.count("<circle") == 5
    told, svg = draw_result(
        [{"task": f"t{at}", "p50": 2.0, "p50_low": 1.5, "p50_high": 2.5} for at in range(3)]
    )
    assert told.endswith("Not drawn: nothing.")
    assert svg.count('class="c1 bar"') == 3, "a ratio with its ends is an interval"


def test_every_picture_of_the_docs_has_a_command_that_makes_it() -> None:
    program = (ROOT / "benchmarks" / "pictures.py").read_text("utf-8")
    for picture in (ROOT / "docs" / "images").iterdir():
        assert f'"{picture.name}"' in program
