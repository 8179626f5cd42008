"""Rows of another lake (origin is not NULL) neither hide own rows nor choose what ranks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import builders as b
import pytest

import store

TASK = b.task()
GPU, OTHER, CPU = b.device("H200", kind="cuda"), b.device("A100", kind="cuda"), b.device("laptop")
SIZES, SMALL = b.workload(TASK), b.workload(TASK, "small", '{"N": 2}')
OWN, JUNK = b.kernel("own"), b.kernel("junk")

Judged = dict[str, list[b.Row]]
Ask = Callable[..., list[dict[str, Any]]]
BEST = 'SELECT kernel_id, speedup, clock, "precision" FROM best_kernels'


def judge(
    kernel: b.Row,
    speedup: float | None = None,
    status: str = "correct",
    *,
    device: b.Row = GPU,
    sizes: b.Row = SIZES,
    clock: str | None = "first",
    **columns: Any,
) -> Judged:
    """Return a verdict of this lake, with a session that shows this speedup over eager."""
    row = b.evaluation(kernel, TASK, sizes, device, status, **columns)
    timed = speedup is not None
    timings = b.session(row, [1.0] * 9, clock=clock, eager=[speedup] * 9) if timed else []
    return {"evaluations": [row], "timings": timings}


def pull(rows: Judged) -> Judged:
    """Return the same rows as those of another lake, which come later and state a newer version."""
    evaluations, timings = (
        [row | {"origin": "lab/kernels", "created_at": b.at(99)} for row in rows[table]]
        for table in ("evaluations", "timings")
    )
    return {
        "evaluations": [row | {"evaluator_version": 2**31 - 1} for row in evaluations],
        "timings": timings,
    }


@pytest.fixture
def ask(writer: store.Writer, lake_url: str) -> Ask:
    """Return a function that stores rows beside the task and its kernels, and asks a query."""
    texts = {
        "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [SIZES, SMALL],
        "devices": [GPU, OTHER, CPU], "kernels": [OWN, JUNK],
    }  # fmt: skip
    writer.append(texts, "kernels")

    def one(query: str, *judged: dict[str, list[b.Row]]) -> list[dict[str, Any]]:
        for number, rows in enumerate(judged):
            writer.append(rows, f"rows {number}")
        with store.open(lake_url) as lake:
            return lake.sql(query).rows()

    return one


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("speedup", [None, 1e6], ids=["crash", "timed"])
def test_a_pulled_verdict_does_not_choose_the_precision_of_own_ones(
    ask: Ask, speedup: float | None
) -> None:
    status = "crash" if speedup is None else "correct"
    best = ask(BEST, judge(OWN, 2.0, precision="fp32_strict"))
    assert [(row["speedup"], row["precision"]) for row in best] == [(2.0, "fp32_strict")]
    assert ask(BEST, pull(judge(JUNK, speedup, status, precision="torch_default"))) == best
    # An own verdict by it does, even of a kernel that is wrong.
    assert ask(BEST, judge(JUNK, None, "crash", precision="torch_default", minute=1)) == []


@pytest.mark.slow
def test_pulled_verdicts_choose_the_precision_where_there_are_no_own_ones(ask: Ask) -> None:
    strict = pull(judge(OWN, 2.0, precision="fp32_strict"))
    found = ask(BEST, strict, pull(judge(JUNK, 3.0, precision="torch_default", minute=1)))
    assert [(row["speedup"], row["precision"]) for row in found] == [(3.0, "torch_default")]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("device", "clock", "pulled"), [(GPU, "latency", "gpu"), (CPU, "latency", "throughput")],
    ids=["GPU", "processor"],
)  # fmt: skip
def test_a_pulled_session_does_not_choose_the_clock_of_own_ones(
    ask: Ask, device: b.Row, clock: str, pulled: str
) -> None:
    best = ask(BEST, judge(OWN, 2.0, device=device, clock=clock))
    assert [(row["speedup"], row["clock"]) for row in best] == [(2.0, clock)]
    assert ask(BEST, pull(judge(JUNK, 1e6, device=device, clock=pulled))) == best


@pytest.mark.slow
def test_a_pulled_session_does_not_choose_the_workload_of_own_verdicts(ask: Ask) -> None:
    query = "SELECT workload_id FROM scored_workloads"
    own = [{"workload_id": SIZES["workload_id"]}]
    assert ask(query, judge(OWN, None, "incorrect")) == own
    assert ask(query, pull(judge(JUNK, 2.0, sizes=SMALL))) == own


@pytest.mark.slow
def test_a_pulled_audit_of_another_workload_makes_no_audited_task_weak(ask: Ask) -> None:
    pulled = b.task_audit(SMALL, GPU, ["zeros"], auditor_version=999, origin="lab/kernels")
    assert ask("FROM weak_tasks", {"task_audits": [pulled]}) == [{"task_id": TASK["task_id"]}]
    own = b.task_audit(SIZES, GPU, [])
    assert ask("FROM weak_tasks", {"task_audits": [own]}) == []


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("view", "status", "columns"),
    [
        ("nonequivalent", "correct", {"equivalent": False}),
        ("fragile", "correct", {"flags": ["fails_scaled"]}),
    ],
)
def test_a_pulled_verdict_of_another_device_decides_nothing_about_a_kernel_judged_here(
    ask: Ask, view: str, status: str, columns: dict[str, Any]
) -> None:
    best = ask(BEST, judge(OWN, 2.0))
    pulled = pull(judge(OWN, None, status, device=OTHER, **columns))
    unknown = pull(judge(JUNK, None, status, device=OTHER, **columns))
    assert ask(BEST, pulled, unknown) == best
    # It does about a kernel that only the other lake has judged.
    assert ask(f"SELECT kernel_id FROM {view}") == [{"kernel_id": JUNK["kernel_id"]}]
    # The verdict still shows on its own device.
    query = "SELECT status, elsewhere FROM outcomes WHERE device = 'A100' AND kernel_id = "
    shown = ask(f"{query}'{OWN['kernel_id']}'")
    assert shown == [{"status": status, "elsewhere": True}]


@pytest.mark.slow
def test_a_pulled_verdict_hides_no_own_one_of_the_protocol_training(ask: Ask) -> None:
    query = "SELECT kernel_id, speedup FROM training_speedups"
    own = ask(query, judge(OWN, 2.0, protocol="training"))
    assert own == [{"kernel_id": OWN["kernel_id"], "speedup": 2.0}]
    assert ask(query, pull(judge(OWN, 1e6, minute=1)), pull(judge(OWN, None, "crash"))) == own
    assert ask("FROM outcomes") == []
