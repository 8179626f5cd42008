"""The teacher's kernels as the judge sees them: what is meant to be right is, the rest is not."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from store.generated.writing import families
from store.generated.writing.texts import Task, TeacherKernel

LIMITS = Config(
    draw_shapes=0,
    calls=3,
    robustness=False,
    diagnosis=False,
    timing_s=0.05,
    timing_limit_s=0.05,
    blocks=20,
    import_s=120.0,
    first_call_s=120.0,
    call_s=120.0,
)
# Small, so that a call takes no time; no multiple of a block or tile.
AXES = {"ROWS": 50, "COLS": 75, "N": 45, "M": 35, "BATCH": 2}


def verdict(bench: Bench, task: Task, kernel: TeacherKernel, axes: dict[str, int]) -> str:
    """Return the status that the judge gives.

    A machine that is busy with other work may fail the judge's clock; the answers were right then.
    """
    stated = {name: size for name, size in axes.items() if f"\n{name} = " in task.code}
    case = Case(
        kernel_id=kernel.variant,
        task_id=task.title,
        workload_id=json.dumps(stated),
        code=kernel.code,
        task_code=task.code,
        axes=json.dumps(stated),
    )
    row = judge(case, bench, LIMITS)["evaluations"][0]
    return "correct" if row["reason"] == "timer_mismatch" else str(row["status"])


def runs_here(kernel: TeacherKernel) -> bool:
    return kernel.language in ("torch", "cpp")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", ["norm", "transpose", "triangular"])
def test_kernels_that_are_meant_to_be_right_are(bench: Bench, name: str) -> None:
    _, task = next(families.generate_tasks((name,), 5))
    right = [kernel for kernel in task.kernels if runs_here(kernel) and kernel.right]
    for kernel in (right[0], next(one for one in right if "-O3" in one.code)):
        assert verdict(bench, task, kernel, AXES) == "correct", kernel.variant


def test_one_that_is_meant_to_be_wrong_is(bench: Bench) -> None:
    _, task = next(families.generate_tasks(("transpose",), 5))
    wrong = next(kernel for kernel in task.kernels if kernel.variant == "wrong_tail")
    assert verdict(bench, task, wrong, AXES) == "incorrect"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("name", families.family_names())
def test_all_kernels_of_a_task(bench: Bench, name: str, number: int) -> None:
    [(_, task)] = islice(families.generate_tasks((name,), 11), number, number + 1)
    for kernel in filter(runs_here, task.kernels):
        right = verdict(bench, task, kernel, AXES) == "correct"
        assert right == kernel.right, f"{task.title}, {kernel.variant}"
