"""Charts keep what matters in sight, and draw outliers at their edge."""

from __future__ import annotations

from store.explore.page import charts
from store.explore.page.charts import Axis, fit_scale


def draw(*series: charts.Series) -> str:
    axis = Axis(label="ms per call", scale="log")
    return charts.draw_scatter("any", list(series), Axis(label="block"), axis)


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
