"""What a refusal says: in plain words, with input, element, got, wanted and the kernel's line."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaluators.audit import detect
from evaluators.cli import verdict_text
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.judging.flags import CAUSES, REASONS
from store.schema import catalog

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, scale):
        return x * scale


def get_inputs():
    return [torch.ones(4, 8), 3.0]


def get_init_inputs():
    return []
"""
KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, scale):
        {body}
"""
CALL = r"call 1 on x: float32\[4, 8\], scale: 3.0: "
ERROR = r"RuntimeError: mat1 and mat2 shapes cannot be multiplied \(4x8 and 7x7\)"
TEXTS = {
    "x = x * scale; x[1, 2] = 5; return x": (
        "incorrect (incorrect_numerical)",
        CALL + r"output 0 float32\[4, 8\] at \(1, 2\): got 5, wanted 3; 1 of 32 elements .*",
    ),
    "return (x * scale)[:2]": (
        "incorrect (incorrect_shape)",
        CALL + r"shape \[2, 8\] instead of \[4, 8\]",
    ),
    "return (x * scale).half()": (
        "incorrect (incorrect_dtype)",
        CALL + r"torch.float16 instead of torch.float32",
    ),
    "return [x * scale]": ("incorrect (incorrect_type)", CALL + r"a list instead of a Tensor"),
    "return x * scale / 0": (
        "incorrect (nan)",
        CALL + r"output 0 float32\[4, 8\] at \(0, 0\): got inf, wanted 3; 32 of 32 .*",
    ),
    "y = x * scale; x[2, 5] = 7; return y": (
        "incorrect (input_mutated)",
        r"call 1 has changed x float32\[4, 8\] at \(2, 5\): was 1, is 7 after it.*",
    ),
    "return x @ x.new_zeros(7, 7)": (
        "crash (exception)",
        rf"kernel.py, line 7, in forward: {ERROR}",
    ),
    "return x * (": ("compile_error (syntax_error)", r".*SyntaxError: '\(' was never closed.*"),
}


def read_lines(bench: Bench, code: str, task: str = TASK) -> list[str]:
    """Judge a kernel and return what `evaluators check` prints."""
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task)
    tables = judge(case, bench, Config(protocol="training", calls=2, draw_shapes=0))
    return list(verdict_text.format_lines("kernel.py", "CPU", tables))


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("body", TEXTS)
def test_a_refusal_shows_the_shortest_proof(bench: Bench, body: str) -> None:
    head, proof = TEXTS[body]
    status, plain, message, *_ = read_lines(bench, KERNEL.format(body=body))
    assert status == f"kernel.py on CPU: {head}"
    assert plain.strip() == REASONS[head.partition("(")[2][:-1]]
    assert re.fullmatch(rf"  \| {proof}", message), message


TRACEBACK = """\
  File "/opt/evaluators/worker/loop.py", line 577, in call
    output = self._module(*args, **named)
             ^^^^^^^^^^^^
  File "/tmp/flywheel-1/flywheel-2/kernel.py", line 11, in forward
    return helper(a, b)
           ^^^^^^^^^^^^
{error}
"""
TRITON = """\
triton.compiler.errors.CompilationError: at 3:8:
def scale(a, b):
    row = tl.program_id(0)
    x = tl.loadd(b)
        ^
AttributeError("module 'triton.language' has no attribute 'loadd'")"""
GCC = """\
c++ -MMD -MF main.o.d -c /home/you/.cache/flywheel/live/e9/main.cpp -o main.o
/home/you/.cache/flywheel/live/e9/main.cpp: In function 'at::Tensor scale(at::Tensor)':
/home/you/.cache/flywheel/live/e9/main.cpp:5:12: error: 'class at::Tensor' has no member 'unsqueze'
    5 |   return a.unsqueze(1);
      |            ^~~~~~~~
ninja: build stopped: subcommand failed."""
NVCC = """\
/tmp/flywheel-1/tmp2/scale.cu(3): error: identifier "bb" is undefined
    if (i < n * m) out[i] = a[i / m] * bb[i];
                                       ^

1 error detected in the compilation of "/tmp/flywheel-1/tmp2/scale.cu"."""
LOGS = {
    "exception": (
        TRACEBACK.format(error="NameError: name 'c' is not defined"),
        ["kernel.py, line 11, in forward", "    return helper(a, b)", "           ^^^^^^^^^^^^"],
    ),
    "import_failed": (
        "Traceback (most recent call last):\n" + TRACEBACK.format(error=TRITON),
        [
            "kernel.py, line 11, in forward",
            "    return helper(a, b)",
            "           ^^^^^^^^^^^^",
            "kernel.py, line 5: CompilationError: at 3:8:",
            *TRITON.splitlines()[1:],
        ],
    ),
    "build_failed": (
        GCC,
        [
            "kernel.py, line 2: error: 'class at::Tensor' has no member 'unsqueze'",
            "   return a.unsqueze(1);",
            "            ^~~~~~~~",
        ],
    ),
    "build_failed (nvcc)": (
        NVCC,
        ['scale.cu, line 3: error: identifier "bb" is undefined', *NVCC.splitlines()[1:3]],
    ),
}


@pytest.mark.parametrize("reason", LOGS)
def test_a_failure_shows_lines_of_the_kernel_and_none_of_the_judge(reason: str) -> None:
    log, shown = LOGS[reason]
    row = {
        "evaluation_id": "e", "status": "crash", "reason": reason.partition(" ")[0],
        "message": "kernel.py, line 6: NameError: name 'c' is not defined", "log": log, "flags": [],
    }  # fmt: skip
    source = 'SOURCE = """\n  return a.unsqueze(1);\n"""\n\n    x = tl.loadd(b)\n'
    files = {"kernel.py": source, "scale.cu": ""}
    lines = list(verdict_text.format_lines("kernel.py", "CPU", {"evaluations": [row]}, files=files))
    proof = [line.removeprefix("  | ") for line in lines if line.startswith("  | ")]
    assert [line for line in proof if line != row["message"]] == shown
    assert "/" not in "".join(line for line in proof if not line.startswith("    "))


def test_a_part_of_an_output_is_named_by_its_place(bench: Bench) -> None:
    pairs = TASK.replace("return x * scale", 'return {"a": (x, x * scale)}')
    body = 'return {"a": (x.clone(), (x * scale)[0])}'
    lines = read_lines(bench, KERNEL.format(body=body), pairs)
    assert lines[2].endswith("output['a'][1]: shape [8] instead of [4, 8]"), lines


def test_the_line_of_the_kernel_that_a_detector_knows_is_named(bench: Bench) -> None:
    _, _, message, *_ = read_lines(bench, KERNEL.format(body="return torch.empty_like(x)"))
    assert "; see line 7 (uninitialised-output): return torch.empty_like(x)" in message, message


def test_a_fault_of_the_task_says_nothing_about_the_kernel(bench: Bench) -> None:
    failing = TASK.replace("torch.ones(4, 8)", "torch.ones(4, 8).missing")
    status, plain, message, *_ = read_lines(bench, KERNEL.format(body="return x"), failing)
    assert status == "kernel.py on CPU: evaluator_error (reference_failed)"
    assert "says nothing about the kernel" in plain
    assert "get_inputs() failed" in message, message


def test_every_reason_is_explained() -> None:
    allowed: dict[str, Any] = catalog.load().enums["evaluation_reason"].allowed
    reasons = {reason for listed in allowed.values() for reason in listed} - {"unspecified"}
    assert set(REASONS) == reasons
    assert set(CAUSES) <= reasons
    assert {name for names in CAUSES.values() for name in names} <= {*detect.load_detectors()}
