"""What the arms of a timing session need in common, in the views and in `store check`."""

from __future__ import annotations

from typing import Any

import builders as b
import pytest

import store
from store.upkeep import integrity

TASK = b.task()
GPU = b.device("H200", kind="cuda")
OTHER_GPU = b.device("H200 two", kind="cuda") | {"name": "H200"}
LAPTOP = b.device("laptop")
SIZES, LARGE = b.workload(TASK), b.workload(TASK, "large", '{"N": 4096}')
KERNEL, OTHER = b.kernel("timed"), b.kernel("other")
JUDGED = b.evaluation(KERNEL, TASK, SIZES, GPU)
AGAIN = b.evaluation(KERNEL, TASK, SIZES, GPU, minute=1)
LARGER = b.evaluation(KERNEL, TASK, LARGE, GPU)
OF_LAPTOP = b.evaluation(KERNEL, TASK, SIZES, LAPTOP)
ARMS_TOGETHER = (
    "the arms of a session by one clock have one evaluation, kernel, task, workload, device, state "
    "of the cache and origin"
)
ARMS_ONCE = "a session has every arm once by each clock"
OWN_EVALUATION = (
    "a session has the kernel, task and workload of its evaluation, and its device or one of the "
    "same name and kind"
)

OVERHEAD = "overhead_ms and resolution_ms are not negative"
BLOCKS = "blocks are not negative, and each occurs once"
POSITIONS = "every sample has its position, which is not negative"
CONTROL_RATIOS = "every sample has its control ratio, which is positive"


@pytest.fixture
def writer(writer: store.Writer) -> store.Writer:
    """Return a writer of a lake with verdicts and one quiet session, 2x by compile."""
    writer.append(
        {
            "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [SIZES, LARGE],
            "devices": [GPU, OTHER_GPU, LAPTOP], "kernels": [KERNEL, OTHER],
            "evaluations": [JUDGED, AGAIN, LARGER, OF_LAPTOP],
            "timings": b.session(JUDGED, [1.0] * 9, minute=5, compile=[2.0] * 9),
        },
        "verdicts",
    )  # fmt: skip
    return writer


def time_eager(**changes: Any) -> list[b.Row]:
    """Return a session over eager whose baseline has other columns than the kernel."""
    kernel, eager = b.session(JUDGED, [1.0] * 9, minute=6, eager=[500.0] * 9)
    return [kernel, eager | changes]


def list_speedups(writer: store.Writer, view: str = "speedups") -> list[tuple[str, float]]:
    with writer.reader() as lake:
        found = lake.sql(f"SELECT baseline, speedup FROM {view} ORDER BY ALL").rows()
    return [(row["baseline"], row["speedup"]) for row in found]


def list_rules(writer: store.Writer) -> list[str]:
    return [problem.rule for problem in integrity.check(writer.location, full=False)]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "changes",
    [
        {"device_id": LAPTOP["device_id"], "evaluation_id": OF_LAPTOP["evaluation_id"]},
        {"device_id": OTHER_GPU["device_id"]},
        {"workload_id": LARGE["workload_id"], "evaluation_id": LARGER["evaluation_id"]},
        {"evaluation_id": AGAIN["evaluation_id"]},
        {"cache": "warm"},
        {"origin": "someone/else"},
    ],
    ids=["device", "GPU", "workload", "evaluation", "cache", "origin"],
)
def test_a_baseline_that_differs_from_the_kernel_gives_no_speedup(
    writer: store.Writer, changes: dict[str, Any]
) -> None:
    assert integrity.check(writer.location, full=False) == []
    writer.append({"timings": time_eager(**changes)}, "a session of arms that differ")
    assert list_speedups(writer) == list_speedups(writer, "best_kernels") == [("compile", 2)]
    assert ARMS_TOGETHER in list_rules(writer)
    with writer.reader() as lake:
        assert lake.sql("FROM paired_samples WHERE baseline = 'eager'").rows() == []


@pytest.mark.slow
def test_an_arm_that_joins_a_stored_session_again_counts_for_nothing(writer: store.Writer) -> None:
    arms = b.session(JUDGED, [1.0] * 9, minute=6, eager=[1.5] * 9, cudnn=[1.25] * 9)
    writer.append({"timings": arms}, "a session")
    assert list_speedups(writer) == [("compile", 2), ("cudnn", 1.25), ("eager", 1.5)]
    assert integrity.check(writer.location, full=False) == []
    again = arms[1] | {"timing_id": "again", "samples_ms": [99.0] * 9}
    writer.append({"timings": [again]}, "the same arm")
    for view in ("speedups", "paired_samples", "best_kernels"):
        figure = "1.0 AS speedup" if view == "paired_samples" else "speedup"
        with writer.reader() as lake:
            found = lake.sql(f"SELECT baseline, {figure} FROM {view} ORDER BY ALL").rows()
        assert [row["baseline"] for row in found] == ["compile", "cudnn"]
    # The later arm is new, and the session that it joins was tested before.
    assert list_rules(writer) == [ARMS_ONCE]


@pytest.mark.slow
def test_a_session_on_another_device_than_its_evaluation_ranks_on_an_alike_one_only(
    writer: store.Writer,
) -> None:
    session = b.session(JUDGED, [1.0] * 9, minute=6, eager=[3.0] * 9)
    moved = [arm | {"device_id": OTHER_GPU["device_id"]} for arm in session]
    writer.append({"timings": moved}, "a GPU of the same name")
    assert list_speedups(writer) == [("compile", 2), ("eager", 3)]
    assert integrity.check(writer.location, full=False) == []
    session = b.session(JUDGED, [1.0] * 9, minute=7, cudnn=[7.0] * 9)
    moved = [arm | {"device_id": LAPTOP["device_id"], "clock": "latency"} for arm in session]
    writer.append({"timings": moved}, "a processor")
    assert list_speedups(writer) == [("compile", 2), ("eager", 3)]
    assert list_rules(writer) == [OWN_EVALUATION]


@pytest.mark.slow
def test_a_session_with_impossible_control_ratios_is_disturbed(writer: store.Writer) -> None:
    kernel, eager = b.session(JUDGED, [1.0] * 20, minute=6, eager=[1.0] * 20)
    for number, ratios in enumerate(([-1000.0] * 15 + [0.001] * 5, [0.0] * 20, [0.5] * 19 + [0.0])):
        ids = {"session_id": f"session {number}"}
        arms = [
            kernel | ids | {"timing_id": f"kernel {number}", "control_ratios": ratios},
            eager | ids | {"timing_id": f"eager {number}"},
        ]
        writer.append({"timings": arms}, f"ratios {number}")
    with writer.reader() as lake:
        found = lake.sql("FROM session_speedups WHERE baseline = 'eager'").rows()
    assert len(found) == 3
    for row in found:
        assert row["disturbed"]
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert list_speedups(writer, "best_kernels") == [("compile", 2)]
    assert list_rules(writer) == [CONTROL_RATIOS]


NINE = list(range(9))
IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    ("no call", {"inner_loops": 0}, "a sample is of at least one call"),
    ("fewer calls", {"inner_loops": -3}, "a sample is of at least one call"),
    ("overhead", {"overhead_ms": -0.1}, OVERHEAD),
    ("resolution", {"resolution_ms": -0.1}, OVERHEAD),
    ("negative block", {"blocks": [*NINE[:8], -1]}, BLOCKS),
    ("one block", {"blocks": [0] * 9}, BLOCKS),
    ("block twice", {"blocks": [*NINE[:8], 7]}, BLOCKS),
    ("positions", {"positions": [0, 1]}, POSITIONS),
    ("negative position", {"positions": [-1] * 9}, POSITIONS),
    ("ratios", {"control_ratios": [1.0] * 8}, CONTROL_RATIOS),
    ("no ratios", {"control_ratios": []}, CONTROL_RATIOS),
    ("ratio 0", {"control_ratios": [1.0] * 8 + [0.0]}, CONTROL_RATIOS),
]


def time_twice(changed: str, changes: dict[str, Any]) -> list[b.Row]:
    """Return a session with two clocks and two baselines, and changes to one arm by clock gpu."""
    quick = b.session(JUDGED, [1.0] * 9, minute=6, eager=[500.0] * 9, cudnn=[400.0] * 9)
    calls = b.session(
        JUDGED, [1.0] * 9, minute=6, clock="latency", eager=[3.0] * 9, cudnn=[4.0] * 9
    )
    return [
        arm | {"session_id": "session"} | (changes if arm["arm"] == changed else {})
        for arm in quick
    ] + [arm | {"session_id": "session"} for arm in calls]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("changed", "changes", "rule"),
    [
        pytest.param(arm, changes, rule, id=f"{name} of {arm}")
        for name, changes, rule in IMPOSSIBLE
        for arm in ("eager", "kernel")
    ],
)
def test_a_speedup_with_an_impossible_arm_does_not_rank(
    writer: store.Writer, changed: str, changes: dict[str, Any], rule: str
) -> None:
    writer.append({"timings": time_twice(changed, changes)}, "a session that nobody timed")
    left = ["cudnn"] if changed == "eager" else []
    with writer.reader() as lake:
        for view in ("best_kernels", "pooled_speedups", "scored_speedups", "leading_speedups"):
            found = lake.sql(f"FROM {view} WHERE clock = 'gpu'").rows()
            assert {row["baseline"] for row in found} == {"compile", *left}
        quiet = "session_id = 'session' AND NOT disturbed ORDER BY ALL"
        for view in ("session_speedups", "paired_samples"):
            found = lake.sql(f"SELECT DISTINCT clock, baseline FROM {view} WHERE {quiet}").rows()
            assert [(row["clock"], row["baseline"]) for row in found] == [
                *(("gpu", arm) for arm in left), ("latency", "cudnn"), ("latency", "eager")
            ]  # fmt: skip
        # The fixture has a quiet session of the same kernel with the baseline compile.
        possible = sorted({"compile", "cudnn", "eager", "kernel"} - ({"eager"} & {changed}))
        assert lake.sql(
            "SELECT DISTINCT arm FROM timed_arms WHERE clock = 'gpu' AND NOT disturbed ORDER BY arm"
        ).rows() == [{"arm": arm} for arm in possible]
        assert lake.sql("SELECT clock, reason FROM unranked_sessions").rows() == (
            [] if left else [{"clock": "gpu", "reason": f"impossible: {rule}"}]
        )
    (problem,) = integrity.check(writer.location, full=False)
    assert (problem.rule, problem.count) == (rule, 1)


@pytest.mark.slow
def test_an_impossible_speedup_of_the_protocol_training_earns_no_reward(
    writer: store.Writer,
) -> None:
    trained = b.evaluation(OTHER, TASK, SIZES, GPU, protocol="training")
    kernel, eager, compiled = b.session(
        trained, [1.0] * 9, minute=6, eager=[50.0] * 9, compile=[2.0] * 9
    )
    writer.append(
        {"evaluations": [trained], "timings": [kernel, eager | {"inner_loops": 0}, compiled]},
        "a session that nobody timed",
    )
    assert list_speedups(writer, "training_speedups") == [("compile", 2.0)]


@pytest.mark.slow
def test_dropped_blocks_are_possible(writer: store.Writer) -> None:
    kept = {"blocks": [0, 1, 3, 4, 5, 8, 9, 12, 13], "positions": [0, 1] * 4 + [0]}
    arms = b.session(JUDGED, [1.0] * 9, minute=6, eager=[3.0] * 9)
    measured = {"overhead_ms": 0.0, "resolution_ms": 0.0, "control_ratios": [1.0] * 9}
    writer.append({"timings": [arm | kept | measured for arm in arms]}, "a session with gaps")
    assert list_speedups(writer, "best_kernels") == [("compile", 2), ("eager", 3)]
    assert integrity.check(writer.location, full=False) == []


@pytest.mark.slow
def test_a_processor_has_no_clock_gpu(writer: store.Writer) -> None:
    slow = b.session(OF_LAPTOP, [1.0] * 9, minute=6, clock="gpu", eager=[0.5] * 9)
    quick = b.session(OF_LAPTOP, [1.0] * 9, minute=7, clock="throughput", eager=[5.0] * 9)
    writer.append({"timings": [*slow, *quick]}, "sessions of a processor")
    with writer.reader() as lake:
        found = lake.sql("SELECT clock, speedup FROM best_kernels WHERE device = 'laptop'").rows()
    assert found == [{"clock": "throughput", "speedup": 5}]
    assert list_rules(writer) == ["a processor has no clock gpu"]
