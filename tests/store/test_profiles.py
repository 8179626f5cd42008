"""Views profiles and technique_wins: profiles with their evaluation, their causes, and who wins."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import builders as b
import pytest

import store

H100 = b.device("H100", kind="cuda")
H200 = b.device("H200", kind="cuda")
TEXT = (
    "One call: 0.4 ms, 3 kernels.\n"
    "Own kernels: 75 % of the device's time.\n"
    "Memory: at least 200 MB, 500 GB/s, 15 % of 3352.\n"
    "Compute: 2 GFLOP in the reference, 5000 GFLOP/s, 7 % of 6.7e+04.\n"
    "Device idle: 12 %.\n"
    "Bottleneck: unknown."
)
BEYOND = TEXT.replace(
    "Compute: 2 GFLOP in the reference, 5000 GFLOP/s, 7 % of 6.7e+04.",
    "Compute: fewer operations than the reference, whose 137.4 GFLOP would take 2 ms at the peak.",
).replace("15 %", "4 %")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return profiles with and without their evaluation, and ten tasks with two kernels each."""
    tasks = [b.task(f"task {place}") for place in range(10)]
    sizes = [b.workload(task) for task in tasks]
    plain = [b.kernel(f"plain {place}") for place in range(10)]
    fused = [b.kernel(f"fused {place}") for place in range(10)]
    evaluations: list[b.Row] = []
    timings: list[b.Row] = []
    analyses: list[b.Row] = []
    for place, (task, size) in enumerate(zip(tasks, sizes, strict=True)):
        for kernel, speedup in ((plain[place], 1.0), (fused[place], 2.0 + place / 10)):
            row = b.evaluation(kernel, task, size, H100, minute=10 * place)
            evaluations.append(row)
            timings += b.session(row, [1.0] * 9, eager=[speedup] * 9)
        bound = {"memory_share": 0.2, "compute_share": 0.1} if place < 6 else {"compute_share": 2.0}
        about = {
            "analysis_id": f"new {place}", "bottleneck": "launch_overhead", "confidence": 0.5,
            "idle_share": 0.5, "evaluation_id": evaluations[-1]["evaluation_id"],
        }  # fmt: skip
        analyses.append(profile(fused[place], place * 10, **about, **bound))
    old = b.kernel("old")
    first = b.evaluation(old, tasks[0], sizes[0], H100, minute=200)
    both = [
        b.evaluation(old, tasks[0], sizes[0], device, minute=300, precision=precision)
        for device, precision in ((H100, "fp32_strict"), (H200, "fp32_strict custom_required"))
    ]
    later = {"created_at": first["created_at"] + timedelta(milliseconds=2)}
    analyses += [
        profile(old, 200, analysis_id="by time", body=TEXT, **later),
        profile(old, 200, analysis_id="beyond", body=BEYOND, **later),
        profile(old, 300, analysis_id="of two", body=TEXT),
        profile(old, 400, analysis_id="of none", body=TEXT, bottleneck="memory_bandwidth"),
        profile(
            old, 300, analysis_id="named", author="ncu 2025.3", bottleneck="compute",
            evaluation_id=both[1]["evaluation_id"],
        ),
    ]  # fmt: skip
    url = str(tmp_path_factory.mktemp("profiles") / "lake")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": tasks,
                "task_labels": [
                    b.label(task, f"level2/{n}", level=2) for n, task in enumerate(tasks)
                ],
                "workloads": sizes,
                "devices": [H100, H200],
                "kernels": [*plain, *fused, old],
                "kernel_features": [
                    *(b.features(kernel) for kernel in (*plain, old)),
                    *(b.features(kernel, ["fusion"]) for kernel in fused),
                ],
                "evaluations": [*evaluations, first, *both],
                "timings": timings,
                "analyses": analyses,
            },
            "rows of a test",
        )
    with store.open(url) as opened:
        yield opened


def profile(kernel: b.Row, minute: float, **columns: Any) -> b.Row:
    return {
        "kernel_id": kernel["kernel_id"], "kind": "profiler", "author": "torch.profiler 2.11",
        "body": "text", "bottleneck": "unknown", "created_at": b.at(minute),
    } | columns  # fmt: skip


def read(lake: store.Lake, analysis_id: str) -> dict[str, Any]:
    [row] = lake.sql("FROM profiles WHERE analysis_id = $id", {"id": analysis_id}).rows()
    return row


def test_a_profile_has_the_device_workload_and_precision_of_its_evaluation(
    lake: store.Lake,
) -> None:
    row = read(lake, "named")
    assert (row["device"], row["precision"]) == ("H200", "fp32_strict")
    assert row["workload_id"] == b.workload(b.task("task 0"))["workload_id"]
    assert (row["bottleneck"], row["confidence"], row["bound"]) == ("compute", None, None)
    row = read(lake, "new 0")
    assert (row["bottleneck"], row["confidence"], row["idle_share"]) == (
        "launch_overhead", 0.5, 0.5,
    )  # fmt: skip
    assert (row["bound"], read(lake, "new 9")["bound"]) == ("memory", "compute")


def test_the_evaluation_of_an_old_profile_is_found_only_where_there_is_one(
    lake: store.Lake,
) -> None:
    assert read(lake, "by time")["device"] == "H100"
    for name in ("of two", "of none"):
        row = read(lake, name)
        assert (row["evaluation_id"], row["device"], row["precision"]) == (None, None, None)


def test_an_old_text_names_its_largest_cause_with_its_share(lake: store.Lake) -> None:
    row = read(lake, "by time")
    assert (row["bottleneck"], row["confidence"], row["bound"]) == (
        "memory_bandwidth", 0.15, "memory",
    )  # fmt: skip
    assert (row["compute_share"], row["idle_share"]) == (0.07, 0.12)
    # Operations that the kernel cannot have done limit the task and not the kernel.
    row = read(lake, "beyond")
    assert (row["bottleneck"], row["confidence"], row["bound"]) == (
        "launch_overhead", 0.12, "compute",
    )  # fmt: skip
    assert row["compute_share"] == pytest.approx(5.0)


def test_techniques_that_win_at_tasks_of_one_bound_have_intervals_over_tasks(
    lake: store.Lake,
) -> None:
    [row] = lake.sql("FROM technique_wins WHERE bound = 'memory' AND level = 2").rows()
    assert (row["technique"], row["device"], row["baseline"]) == ("fusion", "H100", "eager")
    assert (row["tasks"], row["kernels"], row["tasks_without"]) == (6, 6, 6)
    logs = lake.sql(
        "SELECT list(ln(speedup) ORDER BY speedup) AS logs FROM technique_speedups "
        "WHERE techniques = ['fusion'] AND speedup < 2.55"
    ).rows()[0]["logs"]
    assert len(logs) == 6
    mean, half = statistics.fmean(logs), 2.570582 * statistics.stdev(logs) / 6**0.5  # t of 5
    low, high = mean - half, mean + half
    ends = lake.sql("SELECT ln(geomean_low) AS low, ln(geomean_high) AS high FROM technique_wins")
    [found] = ends.rows()
    assert (found["low"], found["high"]) == (
        pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4),
    )  # fmt: skip
    assert row["lift"] == pytest.approx(row["geomean"] / row["geomean_without"])
    # The other four tasks are too few for a row.
    assert row["lift_low"] > 1.9
