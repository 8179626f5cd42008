"""The spread of sessions: its estimate, the command that stores it, and the intervals it widens."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders as b
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from evaluators.judge import VERSION
from evaluators.scheduling.cases import read_cases
from evaluators.timing.intervals import read_fallback_spreads
from evaluators.timing.spreads import estimate_spread, read_spreads
from store.importers import measured
from store.importers.reading.pieces import run_import

TASK, GPU, LAPTOP = b.task(), b.device("H200", kind="cuda"), b.device("laptop")
SIZES = b.workload(TASK)
KERNELS = [b.kernel(f"k{number}") for number in range(12)]

Ask = Callable[[str], list[dict[str, Any]]]


def draw_kernels(
    draw: random.Random, spread: float, error: float, count: int = 400
) -> list[list[tuple[float, float]]]:
    """Draw 2 to 4 sessions of each kernel."""
    return [
        [
            (draw.gauss(0.7, spread) + draw.gauss(0, error), error)
            for _ in range(draw.choice([2, 3, 4]))
        ]
        for _ in range(count)
    ]


@pytest.mark.parametrize(("spread", "error"), [(0.01, 0.002), (0.02, 0.02), (0.12, 0.06)])
def test_the_estimate_is_the_spread_beyond_the_error_of_sessions(
    spread: float, error: float
) -> None:
    kernels = draw_kernels(random.Random(1), spread, error)
    assert estimate_spread(kernels) == pytest.approx(spread, rel=0.1)
    kernels[0][0] = (9.0, error)  # one session that went wrong
    assert estimate_spread(kernels) == pytest.approx(spread, rel=0.15)


def test_sessions_that_differ_by_their_error_alone_have_hardly_any_spread() -> None:
    assert estimate_spread(draw_kernels(random.Random(2), 0.0, 0.05)) < 0.015


@pytest.fixture
def ask(lake_url: str) -> Ask:
    """Return a function that asks a query of the lake."""

    def run(query: str) -> list[dict[str, Any]]:
        with store.open(lake_url) as lake:
            return lake.sql(query).rows()

    return run


def judge(
    kernel: b.Row, ratio: float, minute: int, device: b.Row = GPU, **columns: Any
) -> dict[str, list[b.Row]]:
    """Return a verdict and its session, whose samples are `ratio` times 1 ms, within 0.2 %."""
    row = b.evaluation(kernel, TASK, SIZES, device, minute=minute, **columns)
    eager = [ratio * math.exp((place - 9.5) / 10_000) for place in range(20)]
    return {"evaluations": [row], "timings": b.session(row, [1.0] * 20, eager=eager)}


def merge(*parts: dict[str, list[b.Row]]) -> dict[str, list[b.Row]]:
    merged: dict[str, list[b.Row]] = {
        "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [SIZES],
        "devices": [GPU, LAPTOP], "kernels": KERNELS,
    }  # fmt: skip
    for part in parts:
        for name, rows in part.items():
            merged[name] = merged.get(name, []) + rows
    return merged


@pytest.mark.slow
def test_the_command_stores_an_estimate_that_later_intervals_include(
    writer: store.Writer, lake_url: str, ask: Ask, tmp_path: Path
) -> None:
    once = [judge(kernel, 2.0, 0) for kernel in KERNELS]
    writer.append(merge(*once, judge(KERNELS[0], 2.0, 1)), "one session of each, two of one")
    refused = commands.run(["evaluators", "spread", "--lake", lake_url], cwd=tmp_path)
    assert refused.returncode == 1
    assert "no device model has enough kernels with repeated sessions" in refused.stderr
    assert "H200, gpu: 1 pairs of sessions are too few" in refused.stderr
    # A second session of each, 2 % higher or lower: pairs differ by sqrt(2) spreads.
    again = [
        judge(kernel, 2.0 * math.exp(0.02 * (-1) ** place), 2)
        for place, kernel in enumerate(KERNELS[1:])
    ]
    before = writer.append(
        {name: [row for part in again for row in part[name]] for name in again[0]}, "again"
    )
    tried = commands.run(["evaluators", "spread", "--dry-run", "--lake", lake_url], cwd=tmp_path)
    assert tried.returncode == 0, tried.stderr
    assert "session_spreads" not in tried.stdout
    assert ask("FROM session_spreads") == []
    done = commands.run(["evaluators", "spread", "--lake", lake_url], cwd=tmp_path)
    assert done.stdout.splitlines()[-1].startswith("session_spreads +1 → snapshot ")
    [estimate] = ask("FROM session_spreads")
    about = ("device", "clock", "evaluator", "evaluator_version", "kernels", "sessions", "pairs")
    assert [estimate[name] for name in about] == ["H200", "gpu", "starter", 1, 12, 24, 12]
    assert (estimate["snapshot_id"], estimate["origin"]) == (before, None)
    assert estimate["tau"] == pytest.approx(0.02 / math.sqrt(2), rel=0.1)
    [current] = ask("FROM current_spreads")
    assert current["sessions_for_1_percent"] == math.ceil((1.96 * estimate["tau"] / 0.01) ** 2)
    assert {row["spread"] for row in ask("FROM speedups")} == {estimate["tau"]}


@pytest.mark.slow
def test_the_newest_own_estimate_of_the_model_clock_and_version_counts(
    writer: store.Writer, lake_url: str, ask: Ask
) -> None:
    tables = merge(judge(KERNELS[0], 2.0, 0), judge(KERNELS[1], 2.0, 0, LAPTOP))
    first = writer.append(tables, "two sessions")
    spread = "SELECT spread FROM session_speedups WHERE clock = 'gpu'"
    assert ask(spread) == [{"spread": read_fallback_spreads()["gpu"]}]
    others = [
        b.session_spread(GPU, 0.3, evaluator_version=2),
        b.session_spread(LAPTOP, 0.31),
        b.session_spread(GPU, 0.32, evaluator="strict"),
        b.session_spread(GPU, 0.33, clock="latency"),
    ]
    writer.append({"session_spreads": others}, "of others")
    assert ask(spread) == [{"spread": read_fallback_spreads()["gpu"]}]
    of_the_judge = b.session_spread(GPU, 0.02, evaluator="judge", evaluator_version=VERSION)
    writer.append({"session_spreads": [of_the_judge]}, "of the judge")
    with store.open(lake_url) as lake:
        assert read_spreads(lake, "H200", VERSION) == {"gpu": 0.02}
        assert read_spreads(lake, "laptop", VERSION) == {}
        kernels = lake.sql(
            "SELECT kernel_id, task_id, workload_id, '{}' AS axes, false AS compiles, "
            "'torch_default' AS precision, 'full' AS protocol FROM evaluations"
        ).arrow()
        assert {(case.spreads or {})["gpu"] for case in read_cases(lake, kernels, "H200")} == {0.02}
    pulled = b.session_spread(GPU, 0.04, minute=9, origin="lab/kernels")
    writer.append({"session_spreads": [pulled]}, "a pulled one")
    assert ask(spread) == [{"spread": 0.04}]
    writer.append({"session_spreads": [b.session_spread(GPU, 0.05)]}, "an own one")
    assert ask(spread) == [{"spread": 0.05}]
    newest = writer.append({"session_spreads": [b.session_spread(GPU, 0.06, minute=1)]}, "newer")
    assert ask(spread) == [{"spread": 0.06}]
    figures = "SELECT speedup, speedup_low, speedup_high FROM kernel_speedups WHERE clock = 'gpu'"
    with store.open(lake_url, first) as old, store.open(lake_url, newest) as new:
        [then], [now] = old.sql(figures).rows(), new.sql(figures).rows()
        assert old.sql(spread).rows() == [{"spread": read_fallback_spreads()["gpu"]}]
    assert then["speedup"] == now["speedup"] == pytest.approx(2.0)
    assert now["speedup_low"] == pytest.approx(2.0 * math.exp(-1.96 * 0.06), rel=1e-3)
    assert now["speedup_low"] < then["speedup_low"] < then["speedup_high"] < now["speedup_high"]


@pytest.mark.slow
def test_sessions_pool_by_their_variance_and_those_of_two_versions_never_mix(
    writer: store.Writer, ask: Ask
) -> None:
    tables = merge(
        judge(KERNELS[0], 2.0, 0), judge(KERNELS[0], 4.0, 1), judge(KERNELS[0], 4.0, 2),
        judge(KERNELS[1], 9.0, 0), judge(KERNELS[1], 3.0, 1, evaluator_version=2),
        judge(KERNELS[2], 9.0, 0, evaluator="strict"), judge(KERNELS[2], 5.0, 1),
    )  # fmt: skip
    wide = next(row for row in tables["timings"] if row["samples_ms"][0] > 1.9)
    # The first session's samples scatter so much that it weighs a quarter of the others.
    spread, far = 0.1, math.sqrt(3) * 1.96 * 0.1
    wide["samples_ms"] = [2 * math.exp(far * (place - 9.5) / 5.5) for place in range(20)]
    spreads = [b.session_spread(GPU, spread, evaluator_version=version) for version in (1, 2)]
    spreads[1]["spread_id"] = "of version 2"
    writer.append({**tables, "session_spreads": spreads}, "sessions")
    ranked = {row["kernel_id"]: row for row in ask("FROM kernel_speedups")}
    pooled = ranked[KERNELS[0]["kernel_id"]]
    middle = (math.log(2.0) / 4 + 2 * math.log(4.0)) / 2.25
    assert (pooled["sessions"], pooled["n"]) == (3, 60)
    assert math.log(pooled["speedup"]) == pytest.approx(middle, abs=0.02)
    names = ("kernel_id", "sessions", "n")
    best = "SELECT kernel_id, sessions, n FROM best_kernels WHERE baseline = 'eager'"
    [shown] = ask(best)
    assert shown == {name: ranked[shown["kernel_id"]][name] for name in names}
    whole = ask("SELECT DISTINCT sessions FROM leaderboard WHERE baseline = 'eager'")
    assert whole == [{"sessions": shown["sessions"]}]
    half = 1.96 * spread / math.sqrt(2.25)
    assert math.log(pooled["speedup_high"] / pooled["speedup"]) == pytest.approx(half, rel=0.05)
    assert math.log(pooled["speedup"] / pooled["speedup_low"]) == pytest.approx(half, rel=0.05)
    assert pooled["baseline_ms"] / pooled["kernel_ms"] == pytest.approx(pooled["speedup"], rel=0.01)
    for kernel, speedup in ((KERNELS[1], 3.0), (KERNELS[2], 5.0)):
        row = ranked[kernel["kernel_id"]]
        assert (row["sessions"], row["speedup"]) == (1, pytest.approx(speedup, rel=0.01))


@pytest.mark.slow
def test_a_folder_of_measured_rows_brings_its_estimate(
    writer: store.Writer, ask: Ask, tmp_path: Path
) -> None:
    writer.append(merge(), "kernels")
    rows = judge(KERNELS[0], 2.0, 0) | {"session_spreads": [b.session_spread(GPU, 0.05)]}
    for name, listed in rows.items():
        pq.write_table(pa.Table.from_pylist(listed), tmp_path / f"{name}.parquet")
    run_import(writer, measured, tmp_path, measured.Config(own=True))
    assert ask("SELECT spread FROM speedups") == [{"spread": 0.05}]
    assert ask("SELECT origin FROM session_spreads") == [{"origin": None}]
