"""Reward rules of other systems, recomputed from stored samples: figures worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from store import ids

TASK, KERNEL = b.task(), b.kernel("timed")
GPU, LAPTOP = b.device("H200", kind="cuda"), b.device("laptop")
SIZES = b.workload(TASK)
JUDGED = b.evaluation(KERNEL, TASK, SIZES, GPU)

# Samples of eager where the kernel takes 1 ms, and what the rule of seven buckets makes of them.
BUCKETS: dict[str, tuple[list[float], float | None]] = {
    # Two blocks a bucket; bucket means 1.0, 1.05, 1.1, 1.118, 1.12, 1.15, 1.2: median 1.118.
    "rounds down to 1": (
        [1, 1, 1, 1.1, 1.1, 1.1, 1.118, 1.118, 1.12, 1.12, 1.15, 1.15, 1.2, 1.2],
        1.11,
    ),
    "rounds up to 1": ([0.992] * 14, 1.0),
    "slower": ([0.5] * 7, 0.5),
    "two decimals stay": ([1.12] * 7, 1.12),
    "two decimals stay, stored a hair below": ([1.04] * 7, 1.04),
    "no seven buckets": ([2.0] * 6, None),
    # Bucket means 1 and six times 1.2: variance 0.04 / 7 = 0.0057 is above the limit of 0.005 ...
    "erratic": ([1.0, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2], None),
    # ... and with 1.03 in place of 1 it is 0.0289 / 7 = 0.0041, which is not.
    "not quite erratic": ([1.03, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2], 1.2),
}
MEANS = b.session(JUDGED, [1.0, 1, 1, 5], minute=50, eager=[2.0, 2, 2, 10], compile=[1.0] * 4)
UNEQUAL = b.session(JUDGED, [1.0] * 9, minute=51, eager=[float(n) for n in range(1, 10)])
PARTS = [
    *b.session(
        JUDGED,
        [float(n) for n in range(1, 9)],
        minute=52,
        eager=[7.0, 5.0, 3.0],
        blocks={"eager": [5, 1, 9]},
    ),
    *b.session(JUDGED, [4.0, 4.0], minute=52, clock="throughput", eager=[8.0, 8.0]),
]


TABLES: dict[str, Sequence[b.Row]] = {
    "tasks": [TASK],
    "workloads": [SIZES],
    "devices": [GPU, LAPTOP],
    "kernels": [KERNEL],
    "evaluations": [JUDGED],
}


@contextmanager
def lake_of(folder: Path, tables: Mapping[str, Sequence[b.Row]]) -> Iterator[store.Lake]:
    """Open a new lake that holds these rows."""
    url = str(folder / "rewards")
    with store.writer(url, author="tests") as writer:
        writer.append(tables, "sessions")
    with store.open(url) as opened:
        yield opened


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with all the sessions."""
    sessions = [
        b.session(
            JUDGED,
            [1.0] * len(eager_ms),
            minute=minute,
            eager=eager_ms,
            blocks={"kernel": range(len(eager_ms))},
        )
        for minute, (eager_ms, _) in enumerate(BUCKETS.values())
    ]
    timings = [row for session in [*sessions, MEANS, UNEQUAL, PARTS] for row in session]
    folder = tmp_path_factory.mktemp("rewards")
    with lake_of(folder, {**TABLES, "timings": timings}) as opened:
        yield opened


def figures(lake: store.Lake, view: str, minute: int) -> list[dict[str, Any]]:
    """Return the view's rows for the session of that minute."""
    at = f"measured_at = TIMESTAMPTZ '{b.at(minute).isoformat()}'"
    return lake.sql(f"FROM {view} WHERE {at} ORDER BY baseline, clock").rows()


@pytest.mark.parametrize("name", BUCKETS)
def test_the_seven_bucket_rule(lake: store.Lake, name: str) -> None:
    eager_ms, speedup = BUCKETS[name]
    [row] = figures(lake, "speedups_cuda_l1", list(BUCKETS).index(name))
    assert row["speedup"] == speedup
    assert row["n"] == len(eager_ms)


def test_buckets_are_in_block_order_and_as_equal_as_can_be(lake: store.Lake) -> None:
    [row] = figures(lake, "speedups_cuda_l1", 51)
    assert row["bucket_means"] == [1, 2, 3, 4.5, 6, 7, 8.5]  # nine blocks: 1, 1, 1, 2, 1, 1, 2
    assert row["speedup"] is None


def test_the_mean_of_kernelbench(lake: store.Lake) -> None:
    compiled, eager = figures(lake, "speedups_kernelbench", 50)
    assert (eager["baseline"], eager["baseline_ms"], eager["kernel_ms"]) == ("eager", 4.0, 2.0)
    assert (eager["speedup"], compiled["speedup"]) == (2.0, 0.5)


def test_arms_are_paired_by_block_and_by_clock(lake: store.Lake) -> None:
    cold, warm = figures(lake, "paired_samples", 52)
    assert (cold["kernel_samples"], cold["baseline_samples"]) == ([2.0, 6.0], [5.0, 7.0])
    assert (warm["kernel_samples"], warm["baseline_samples"]) == ([4.0] * 8, [8.0] * 8)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("pairs", "disturbed"), [(6, True), (7, False)])
def test_a_session_of_few_pairs_is_disturbed_and_ranks_nothing(
    pairs: int, disturbed: bool, tmp_path: Path
) -> None:
    blocks = {"kernel": range(8), "eager": range(8 - pairs, 16 - pairs)}
    rows = b.session(JUDGED, [1.0] * 8, eager=[2.0] * 8, blocks=blocks)
    with lake_of(tmp_path, {**TABLES, "timings": rows}) as opened:
        for view in ("session_speedups", "paired_samples", "speedups"):
            assert [row["disturbed"] for row in opened.sql(f"FROM {view}").rows()] == [disturbed]
        ranked = opened.sql("FROM best_kernels").rows()
        why = opened.sql("SELECT reason FROM unranked_sessions").rows()
    assert (len(ranked), why) == (
        (0, [{"reason": "fewer than 7 pairs of samples"}]) if disturbed else (1, [])
    )


def test_kernelbench_is_computed_from_single_calls_where_they_were_timed(tmp_path: Path) -> None:
    rows = [
        *b.session(JUDGED, [1.0, 1.0], minute=1, eager=[3.0, 3.0]),
        *b.session(JUDGED, [2.0, 2.0], minute=1, clock="latency", eager=[3.0, 3.0]),
        *b.session(JUDGED, [1.0, 1.0], minute=2, eager=[5.0, 5.0]),
    ]
    session_ids = {row["created_at"]: row["session_id"] for row in rows}
    rows = [{**row, "session_id": session_ids[row["created_at"]]} for row in rows]
    with lake_of(tmp_path, {**TABLES, "timings": rows}) as opened:
        found = opened.sql("FROM speedups_kernelbench ORDER BY measured_at").rows()
    assert [(row["clock"], row["speedup"]) for row in found] == [("latency", 1.5), ("gpu", 5.0)]


def test_rows_of_judges_without_a_clock_have_one_by_their_device(tmp_path: Path) -> None:
    judged = {**JUDGED, **b.evaluation(KERNEL, TASK, SIZES, LAPTOP)}
    rows = [
        {**row, "timing_id": ids.content_id("timing", str(number))}
        for number, row in enumerate(
            row
            for evaluation in (JUDGED, judged)
            for cache in ("cold", "warm")
            for row in b.session(evaluation, [1.0], clock=None, cache=cache, eager=[1.0])
        )
    ]
    tables = {**TABLES, "evaluations": [JUDGED, judged]}
    with lake_of(tmp_path, {**tables, "timings": rows}) as opened:
        found = opened.sql(
            "SELECT DISTINCT kind, cache, clock FROM clocked_timings JOIN devices USING (device_id)"
        ).rows()
    clocks = {(row["kind"], row["cache"]): row["clock"] for row in found}
    assert clocks == {
        ("cpu", "cold"): "throughput",
        ("cpu", "warm"): None,
        ("cuda", "cold"): "gpu",
        ("cuda", "warm"): "throughput",
    }
