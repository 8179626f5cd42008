"""Verdicts by several precisions: what the flags do not change is judged once, the rest by each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case

DEFAULT, STRICT, ALLOWED = "torch_default", "fp32_strict", "allow_tf32"
BRIEF: dict[str, Any] = {
    "draw_shapes": 0,
    "import_s": 120.0,
    "call_s": 120.0,
    "timing_s": 0.05,
    "timing_limit_s": 0.3,
    "calls": 3,
    "blocks": 20,
    "robustness": False,
    "diagnosis": False,
}
VERDICT = (
    "kernel_id", "task_id", "workload_id", "device_id", "evaluator", "evaluator_version", "status",
    "reason", "flags", "equivalent", "precision_class", "sandbox_level", "sandbox_missing",
)  # fmt: skip
"""Columns of a verdict that do not depend on the draws of inputs or on times."""
OF_SESSIONS = {"baseline_drift", "below_resolution", "contended", "more_threads", "near_roofline"}
"""Flags that depend on times."""
CONVOLUTION = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(64, 64, 3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(4, 64, 32, 32)]


def get_init_inputs():
    return []
"""

Rows = dict[str, list[dict[str, Any]]]
Judge = Callable[..., Rows]


@pytest.fixture
def judge_by(bench: Bench, task: str) -> Judge:
    """Return a function that judges a candidate by a precision on the processor's bench."""

    def judge_one(
        precision: Any,
        code: str,
        *,
        of_task: str = task,
        task_id: str = "t",
        kernel_id: str = "k",
        **options: Any,
    ) -> Rows:
        case = Case(
            kernel_id=kernel_id, task_id=task_id, workload_id="w", code=code, task_code=of_task
        )
        return judge(case, bench, Config(precision=(precision,), **BRIEF, **options))

    return judge_one


def list_parts(tables: Rows) -> set[str]:
    """Return the parts of a judgement that took time."""
    return set(json.loads(tables["evaluations"][0]["parts_s"]))


def select_verdict(tables: Rows) -> dict[str, Any]:
    """Return what a verdict says, times and errors aside, and which arms it has timed."""
    [row] = tables["evaluations"]
    arms = sorted((timing["clock"], timing["arm"]) for timing in tables["timings"])
    flags = sorted(set(row["flags"]) - OF_SESSIONS)
    return {name: row[name] for name in VERDICT} | {"flags": flags, "arms": arms}


@pytest.mark.slow
def test_flags_that_change_nothing_are_judged_once(judge_by: Judge, right_candidate: str) -> None:
    first = judge_by(DEFAULT, right_candidate)
    second = judge_by(STRICT, right_candidate)
    assert list_parts(second) == {"flags"}
    assert second["evaluations"][0]["precision"] == STRICT
    assert "judged by torch_default" in second["evaluations"][0]["log"]
    assert second["timings"] == first["timings"]
    apart = judge_by(STRICT, right_candidate + "\n")
    assert {"verdict", "timing"} <= list_parts(apart)
    assert select_verdict(second) == select_verdict(first) == select_verdict(apart)


@pytest.mark.slow
def test_a_verdict_for_one_task_is_none_for_another(
    judge_by: Judge, task: str, right_candidate: str
) -> None:
    judge_by(DEFAULT, right_candidate)
    other = judge_by(STRICT, right_candidate, of_task=f"{task}# again\n", task_id="u")
    assert {row["task_id"] for row in (*other["evaluations"], *other["timings"])} == {"u"}
    assert "timing" in list_parts(other)


@pytest.mark.slow
def test_precisions_with_other_tolerances_are_judged_each(
    judge_by: Judge, right_candidate: str
) -> None:
    judge_by(STRICT, right_candidate)
    assert "timing" in list_parts(judge_by(ALLOWED, right_candidate))
    assert "timing" in list_parts(judge_by(DEFAULT, right_candidate)), "the newest is by allow_tf32"


@pytest.mark.slow
def test_other_bits_are_judged_again(judge_by: Judge, candidate: Callable[[str], str]) -> None:
    differs = (
        "import os\nnoise = 1 + os.urandom(1)[0] * 1e-7\nreturn (x @ self.weight).relu() * noise"
    )
    judge_by(DEFAULT, candidate(differs))
    assert "timing" in list_parts(judge_by(STRICT, candidate(differs)))


@pytest.mark.slow
def test_a_reference_that_the_flag_changes_is_judged_again(
    judge_by: Judge, task: str, right_candidate: str
) -> None:
    reads = task.replace(
        "return torch.relu(x @ self.weight)",
        "return torch.relu(x @ self.weight) * (1 + 1e-6 * torch.backends.cudnn.allow_tf32)",
    )
    assert reads != task
    judge_by(DEFAULT, right_candidate, of_task=reads)
    assert "timing" in list_parts(judge_by(STRICT, right_candidate, of_task=reads))


@pytest.fixture
def task_with_rounding_compiler(task: str) -> str:
    """Return a task whose compiled code is wrong under torch_default and right under fp32_strict.

    As where compiled code uses TF32 in a convolution for which eager does not.
    """
    return task.replace(
        "return torch.relu(x @ self.weight)",
        "answer = torch.relu(x @ self.weight)\n"
        "        rounds = torch.compiler.is_compiling() and torch.backends.cudnn.allow_tf32\n"
        "        return answer * 1.01 if rounds else answer",
    )


@pytest.mark.slow
def test_a_verdict_without_a_baseline_is_judged_again(
    judge_by: Judge, task_with_rounding_compiler: str, right_candidate: str
) -> None:
    for precision in (DEFAULT, STRICT):
        tables = judge_by(
            precision, right_candidate, of_task=task_with_rounding_compiler, baselines=("compile",)
        )
        assert "baseline compile: none" in tables["evaluations"][0]["log"]
        assert "timing" in list_parts(tables)


@pytest.mark.gpu
def test_a_baseline_is_timed_by_the_policy_that_it_is_right_by(
    gpu_bench: Bench, task_with_rounding_compiler: str, right_candidate: str
) -> None:
    arms: list[set[str]] = []
    for precision in (DEFAULT, STRICT):
        config = Config(precision=(precision,), **BRIEF, baselines=("compile",))
        case = Case(
            kernel_id="k", task_id="t", workload_id="w", code=right_candidate,
            task_code=task_with_rounding_compiler,
        )  # fmt: skip
        tables = judge(case, gpu_bench, config)
        assert tables["evaluations"][0]["status"] == "correct"
        arms.append({timing["arm"] for timing in tables["timings"]})
    assert arms == [{"kernel", "eager"}, {"kernel", "eager", "compile"}]


@pytest.mark.slow
def test_a_failure_is_judged_again(judge_by: Judge, candidate: Callable[[str], str]) -> None:
    wrong = candidate("return x @ self.weight")
    rows = [judge_by(precision, wrong)["evaluations"][0] for precision in (DEFAULT, STRICT)]
    assert [(row["status"], row["precision"]) for row in rows] == [
        ("incorrect", DEFAULT),
        ("incorrect", STRICT),
    ]
    assert rows[0]["seeds"] != rows[1]["seeds"]


@pytest.mark.gpu
@pytest.mark.parametrize("convolves", [True, False])
def test_a_gpu_gives_the_verdicts_of_separate_runs(
    gpu_bench: Bench, task: str, right_candidate: str, convolves: bool
) -> None:
    code = CONVOLUTION.replace("class Model(", "class ModelNew(") if convolves else right_candidate
    of_task = CONVOLUTION if convolves else task

    def judge_one(precision: Any, kernel_id: str) -> Rows:
        case = Case(kernel_id=kernel_id, task_id="t", workload_id="w", code=code, task_code=of_task)
        return judge(case, gpu_bench, Config(precision=(precision,), baselines=("eager",), **BRIEF))

    together = [judge_one(precision, "k") for precision in (DEFAULT, STRICT)]
    assert ("timing" in list_parts(together[1])) == convolves
    for precision, tables in zip((DEFAULT, STRICT), together, strict=True):
        apart = select_verdict(judge_one(precision, f"by {precision}"))
        assert select_verdict(tables) == apart | {"kernel_id": "k"}
    if convolves:
        classes = [tables["evaluations"][0]["precision_class"] for tables in together]
        assert classes == ["tf32", "fp32"]


@pytest.mark.gpu
def test_a_convolution_may_use_tf32_whichever_algorithm_eager_takes(gpu_bench: Bench) -> None:
    code = CONVOLUTION.replace("class Model(", "class ModelNew(").replace(
        "return self.conv(x)",
        "conv = self.conv\n"
        "        rounded = x.half().float(), conv.weight.half().float(), conv.bias\n"
        "        before, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False\n"
        "        try:\n"
        "            return torch.nn.functional.conv2d(*rounded)\n"
        "        finally:\n"
        "            torch.backends.cudnn.allow_tf32 = before",
    )
    # cuDNN does not take TF32 for these shapes, or takes it: the verdict is the same.
    for channels in ("64, 64, 3", "64, 64, 3, groups=64"):
        rows: list[dict[str, Any]] = []
        for precision in (DEFAULT, STRICT):
            case = Case(
                kernel_id=f"k {channels}", task_id=f"t {channels}", workload_id="w",
                code=code.replace("64, 64, 3", channels),
                task_code=CONVOLUTION.replace("64, 64, 3", channels),
            )  # fmt: skip
            config = Config(precision=(precision,), baselines=("eager", "cudnn"), **BRIEF)
            rows += judge(case, gpu_bench, config)["evaluations"]
        default, strict = rows
        assert (default["status"], default["precision_class"]) == ("correct", "tf32"), default
        assert "precision_below_policy" not in default["flags"]
        assert "baseline cudnn: none" not in (default["log"] or "")
        assert strict["status"] == "incorrect" or "precision_below_policy" in strict["flags"]
        if strict["status"] == "incorrect":
            assert "--precision allow_tf32 would accept this error" in strict["message"]
