"""What the calls of the correctness protocol decide, and what they only flag; in real workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from evaluators.judging.bench import Bench
from evaluators.judging.calls import MOST_CALLS
from evaluators.judging.flags import FLAGS, NONEQUIVALENT, UNRANKED
from evaluators.judging.input_variations import vary_whole
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import Limits
from evaluators.worker.handle import Deadlines, Sizes
from store.lake.sql_files import read_view

LIMITS = Limits(memory_bytes=8 << 30, file_bytes=1 << 24, open_files=256, cpu_s=600)
DEADLINES = Deadlines(import_s=120, build_s=600, first_call_s=120, call_s=120, total_s=600)
Checked = Callable[..., Any]


def module(name: str, init: str, forward: str, arguments: str = "") -> str:
    """Return the text of a module."""
    bodies = ("\n        ".join(part.strip().splitlines()) for part in (init or "pass", forward))
    built, called = bodies
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
        f"class {name}(nn.Module):\n"
        f"    def __init__(self{arguments}):\n        super().__init__()\n        {built}\n\n"
        f"    def forward(self, x):\n        {called}\n"
    )


def task_of(init: str, forward: str, inputs: str = "torch.randn(48, 32)") -> str:
    """Return the text of a task."""
    given = (
        f"\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return module("Model", init, forward) + given


def kernel(init: str, forward: str) -> str:
    """Return the text of a candidate."""
    return module("ModelNew", init, forward)


WEIGHT = "self.weight = nn.Parameter(torch.randn(32, 32))"
MATMUL = task_of(WEIGHT, "return torch.relu(x @ self.weight)")
BATCH_NORM = task_of(
    "self.conv = nn.Linear(32, 16)\nself.norm = nn.BatchNorm1d(16)",
    "return self.norm(self.conv(x))",
)
DROPOUT = task_of("self.drop = nn.Dropout(0.5)", "return self.drop(x)")
MEAN_OF_ALL_CALLS = task_of(
    "self.calls = 0\nself.register_buffer('mean', torch.zeros(48, 32))",
    "self.calls += 1\nself.mean += (x - self.mean) / self.calls\nreturn x * 2",
)
BUFFER_OF_FIRST_CALL = task_of(
    "self.register_buffer('sum', torch.zeros(48, 32))",
    "if 'count' not in self._buffers: self.register_buffer('count', torch.zeros(1))\n"
    "self.count += 1\nself.sum += x\nreturn x * 2",
)
REMEMBERS = task_of(
    "self.hidden = torch.zeros(48, 32)\nself.step = nn.Linear(64, 32)",
    "self.hidden = torch.tanh(self.step(torch.cat([x, self.hidden], 1)))\nreturn self.hidden",
)
AFFINE = task_of(
    "self.weight = nn.Parameter(torch.randn(32))\nself.bias = nn.Parameter(torch.randn(32))",
    "return F.layer_norm(x, (32,), self.weight, self.bias)",
)
STATISTICS = (
    "y = self.conv(x)\nv, m = torch.var_mean(y, 0, correction=0)\n{moved}"
    "return (y - m) * torch.rsqrt(v + 1e-5) * self.norm.weight + self.norm.bias"
)
NORM = "self.conv = nn.Linear(32, 16)\nself.norm = nn.BatchNorm1d(16)"
POSITIVE = task_of(
    "self.weight = nn.Parameter(torch.rand(2048, 16))",
    "return x @ self.weight",
    "torch.rand(8, 2048)",
)
POSITIVE_WEIGHT = "self.weight = nn.Parameter(torch.rand(2048, 16))"
BIAS = task_of(
    "self.weight = nn.Parameter(torch.rand(2048, 16))\n"
    "self.bias = nn.Parameter(torch.randn(16) * 0.02)",
    "return 100 * (x @ self.weight) + self.bias",
    "torch.rand(8, 2048)",
)
RELU_OF_RAND = task_of("", "return torch.relu(x).sum(1)", "torch.rand(48, 32)")
TWO = task_of("", "return [x * 2, (x.argmax(1), x.sum())]")

HONEST = {
    "the same": (MATMUL, kernel(WEIGHT, "return F.relu(x @ self.weight)"), []),
    "a split sum": (
        MATMUL,
        kernel(
            WEIGHT,
            "y = sum(x[:, k:k+8] @ self.weight[k:k+8] for k in (24, 0, 16, 8))\n"
            "return y.clamp(min=0)",
        ),
        [],
    ),
    "in place on its own memory": (
        MATMUL,
        kernel(
            WEIGHT, "y = torch.empty_like(x)\ntorch.mm(x, self.weight, out=y)\nreturn y.relu_()"
        ),
        [],
    ),
    "a static output buffer": (
        MATMUL,
        kernel(
            WEIGHT + "\nself.register_buffer('out', torch.zeros(48, 32), persistent=False)",
            "torch.mm(x, self.weight, out=self.out)\nreturn self.out.relu_()",
        ),
        ["reuses_output_buffer"],
    ),
    "another name": (
        MATMUL,
        kernel("self.w = nn.Parameter(torch.randn(32, 32))", "return torch.relu(x @ self.w)"),
        ["parameters_renamed"],
    ),
    "drawn in another order, known by name": (
        AFFINE,
        kernel(
            "self.bias = nn.Parameter(torch.randn(32))\n"
            "self.weight = nn.Parameter(torch.randn(32))",
            "return F.layer_norm(x, (32,), self.weight, self.bias)",
        ),
        [],
    ),
    "batch statistics": (
        BATCH_NORM,
        kernel(
            "self.conv = nn.Linear(32, 16)\nself.norm = nn.BatchNorm1d(16)",
            "y = self.conv(x)\nv, m = torch.var_mean(y, 0, correction=0)\n"
            "self.norm.running_mean.lerp_(m, 0.1)\n"
            "self.norm.running_var.lerp_(v * (48 / 47), 0.1)\n"
            "return (y - m) * torch.rsqrt(v + 1e-5) * self.norm.weight + self.norm.bias",
        ),
        [],
    ),
    "dropout under the seed of the call": (
        DROPOUT,
        kernel("", "return F.dropout(x, 0.5, True)"),
        [],
    ),
    "a hidden state": (
        REMEMBERS,
        kernel(
            "self.step = nn.Linear(64, 32)\nself.h = None",
            "h = torch.zeros_like(x) if self.h is None else self.h\n"
            "y = F.linear(torch.cat([x, h], 1), self.step.weight, self.step.bias)\n"
            "self.h = torch.tanh(y)\n"
            "return self.h",
        ),
        [],
    ),
    "several outputs": (TWO, kernel("", "return [x + x, (x.argmax(1), x.sum(0).sum())]"), []),
    "a function": (
        task_of("", "return x.exp()"),
        "import torch\ndef run(x): return torch.exp(x)\nModelNew = lambda: run\n",
        [],
    ),
    "a view of its input": (task_of("", "return x.t()"), kernel("", "return x.t()"), []),
    "changes its input as the task does": (
        task_of("", "return x.relu_() + 1"),
        kernel("", "return x.clamp_(min=0).add(1)"),
        [],
    ),
}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_are_correct(name: str, check_code: Checked) -> None:
    task, code, flags = HONEST[name]
    found = check_code(code, task)
    assert (found.status, found.reason) == ("correct", None), found
    assert found.flags == flags
    assert found.evidence.comparison.max_scaled_error is None or (
        found.evidence.comparison.max_scaled_error <= 1
    )


CACHE = (
    "c = self.__dict__.setdefault('c', {{}})\nk = {key}\n"
    "if k not in c: c[k] = torch.relu(x @ self.weight)\nreturn c[k].clone()"
)
NUMERICAL = ("incorrect", "incorrect_numerical")
CHEATS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "memory by address": (MATMUL, CACHE.format(key="x.data_ptr()"), NUMERICAL),
    "memory by shape": (MATMUL, CACHE.format(key="tuple(x.shape)"), NUMERICAL),
    "memory by version": (MATMUL, CACHE.format(key="(id(x), x._version)"), NUMERICAL),
    "memory by corners": (
        MATMUL,
        CACHE.format(key="tuple(x[i, j].item() for i in (0, -1) for j in (0, -1))"),
        NUMERICAL,
    ),
    "memory by the first elements": (
        MATMUL, CACHE.format(key="tuple(x.flatten()[:4].tolist())"), NUMERICAL
    ),
    "memory by a rounded mean": (
        MATMUL, CACHE.format(key="round(float(x.mean()) / 4)"), NUMERICAL
    ),
    "other behaviour after many calls": (
        MATMUL,
        "self.n = getattr(self, 'n', 0) + 1\n"
        "if self.n < 15: self.y = torch.relu(x @ self.weight)\nreturn self.y",
        NUMERICAL,
    ),
    "a wrong answer now and then": (
        MATMUL,
        "self.n = getattr(self, 'n', 0) + 1\ny = torch.relu(x @ self.weight)\n"
        "if self.n % 8 == 7: y[3, 5] += 0.01\nreturn y",
        NUMERICAL,
    ),
    "a constant": (MATMUL, "return torch.ones_like(x)", NUMERICAL),
    "zeros where answers are tiny": (
        task_of("", "return x * 1e-9"), "return torch.zeros_like(x)", NUMERICAL
    ),
    "memory that was never written": (
        MATMUL, "return torch.empty(48, 32)", ("incorrect", "incorrect_numerical", "nan")
    ),
    "memory that was written but for one element": (
        task_of("", "return x * 1e-3"),
        "y = torch.empty(48, 32)\ny[:, 1:] = x[:, 1:] * 1e-3\ny[1:] = x[1:] * 1e-3\nreturn y",
        ("incorrect", "incorrect_numerical", "nan"),
    ),
    "its inputs changed": (
        MATMUL,
        "y = torch.relu(x @ self.weight)\nx.mul_(2)\nreturn y",
        ("incorrect", "input_mutated"),
    ),
    "half precision": (
        MATMUL, "return torch.relu((x.half() @ self.weight.half()).float())", NUMERICAL
    ),
    "bfloat16": (
        MATMUL, "return torch.relu((x.bfloat16() @ self.weight.bfloat16()).float())", NUMERICAL
    ),
    "not a number": (
        MATMUL, "return torch.relu(x @ self.weight) / 0 * 0", ("incorrect", "nan")
    ),
    "a shape that broadcasts": (
        task_of("", "return x.sum(1, keepdim=True)"),
        "return x.sum(1, keepdim=True).expand(48, 48).contiguous()",
        ("incorrect", "incorrect_shape"),
    ),
    "another element type": (
        MATMUL, "return torch.relu(x @ self.weight).double()", ("incorrect", "incorrect_dtype")
    ),
    "one output inside another": (TWO, "return [[x * 2, x.argmax(1)], x.sum()]",
                                  ("incorrect", "incorrect_type")),
    "one output too few": (TWO, "return [x * 2]", ("incorrect", "incorrect_count")),
    "an index off by one": (
        TWO, "return [x * 2, ((x.argmax(1) + 1) % 32, x.sum())]", NUMERICAL
    ),
    "statistics of other batches": (
        BATCH_NORM, "return F.batch_norm(x[:, :16], torch.zeros(16), torch.ones(16))", NUMERICAL
    ),
    "no dropout at all": (DROPOUT, "return x.clone()", NUMERICAL),
}  # fmt: skip


REPEATED = {
    *("memory by shape", "memory by version", "memory by corners", "memory by a rounded mean"),
    *("memory that was written but for one element", "bfloat16", "one output too few"),
    *("inputs that have to be contiguous", "weights of one left out", "no running statistics"),
    *("a bias far below the tolerance left out", "half precision where no input is negative"),
    *("running statistics moved too fast",),
}
"""Candidates whose like is beside them; `make test-all` tries them."""


def mark_repeated(names: Iterable[str]) -> list[Any]:
    """Return the parameters of a test, those that repeat another one marked slow."""
    return [pytest.param(n, marks=[pytest.mark.slow] if n in REPEATED else []) for n in names]


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("name", mark_repeated(CHEATS))
def test_cheats_are_not_correct(name: str, check_code: Checked) -> None:
    task, forward, (status, *reasons) = CHEATS[name]
    found = check_code(kernel(WEIGHT if task is MATMUL else "", forward), task)
    assert (found.status, found.reason in reasons) == (status, True), found
    assert found.message
    if found.reason in ("incorrect_numerical", "nan"):
        assert "at (" in found.message


FLAGGED = {
    "positive inputs taken for granted": (
        RELU_OF_RAND,
        kernel("", "return x.sum(1)"),
        {"fails_signed", "fails_random_signs", "another_function"},
    ),
    "small inputs taken for granted": (
        task_of("", "return torch.tanh(x)", "torch.rand(48, 32)"),
        kernel("", "return torch.tanh(x.clamp(-2, 2))"),
        {"fails_scaled", "fails_shifted", "fails_infinities", "fails_uneven", "another_function"},
    ),
    "inputs taken for contiguous": (
        task_of("", "return x * 2"),
        kernel("", "return torch.as_strided(x, x.shape, (32, 1)) * 2"),
        {"fails_noncontiguous"},
    ),
    "inputs that have to be contiguous": (
        task_of("", "return x * 2"),
        kernel("", "assert x.is_contiguous()\nreturn x * 2"),
        {"fails_noncontiguous"},
    ),
    "weights used before they are known": (
        MATMUL,
        kernel(
            WEIGHT + "\nself.twice = 2 * self.weight.detach()",
            "return torch.relu(x @ self.twice) / 2",
        ),
        {"fails_perturbed_parameters"},
    ),
    "weights of one left out": (
        task_of("self.norm = nn.LayerNorm(32)", "return self.norm(x)"),
        kernel("self.norm = nn.LayerNorm(32)", "return F.layer_norm(x, (32,))"),
        {"fails_perturbed_parameters"},
    ),
    "a bias far below the tolerance left out": (
        BIAS,
        kernel(
            "self.weight = nn.Parameter(torch.rand(2048, 16))\n"
            "self.bias = nn.Parameter(torch.randn(16) * 0.02)",
            "return 100 * (x @ self.weight)",
        ),
        {"fails_perturbed_parameters"},
    ),
    "an answer that wavers": (
        MATMUL,
        kernel(
            WEIGHT,
            "self.n = getattr(self, 'n', 0) + 1\n"
            "return torch.relu(x @ self.weight) * (1 + (self.n % 2) * 2e-5)",
        ),
        {"nondeterministic", "precision_below_policy"},
    ),
    "factors of half precision beside positive inputs": (
        POSITIVE,
        kernel(POSITIVE_WEIGHT, "return x.half().float() @ self.weight.half().float()"),
        {"precision_below_policy"},
    ),
    "half precision where no input is negative": (
        POSITIVE,
        kernel(
            POSITIVE_WEIGHT,
            "if (x < 0).any(): return x @ self.weight\n"
            "return x.half().float() @ self.weight.half().float()",
        ),
        {"precision_below_policy"},
    ),
    "half precision, and another function of negative inputs": (
        POSITIVE,
        kernel(POSITIVE_WEIGHT, "return x.clamp(min=0).half().float() @ self.weight"),
        {"precision_below_policy", "another_function"},
    ),
    "another function wherever it could be found out": (
        POSITIVE,
        kernel(
            POSITIVE_WEIGHT,
            "if x.mean() < 0.4: return torch.zeros(x.shape[0], 16)\n"
            "return x.half().float() @ self.weight",
        ),
        {"precision_below_policy", "another_function"},
    ),
    "running statistics left alone": (
        BATCH_NORM,
        kernel(NORM, STATISTICS.format(moved="")),
        {"state_differs"},
    ),
    "running statistics moved too fast": (
        BATCH_NORM,
        kernel(NORM, STATISTICS.format(moved="self.norm(y + 0)\nself.norm(y)\n")),
        {"state_differs"},
    ),
    "no running statistics": (
        BATCH_NORM,
        kernel(
            "self.conv = nn.Linear(32, 16)\nself.norm = nn.LayerNorm(16)",
            STATISTICS.format(moved=""),
        ),
        {"state_differs"},
    ),
    "a weight that a call has taken away": (
        MATMUL,
        kernel(
            WEIGHT,
            "if not hasattr(self, 'own'):\n"
            "    self.own = self.weight.detach().clone()\n    self.weight.data.zero_()\n"
            "return torch.relu(x @ self.own)",
        ),
        {"state_differs", "fails_perturbed_parameters"},
    ),
    "zeros divided by zero": (
        task_of("", "return x / (x.norm(dim=1, keepdim=True) + 1e-12)"),
        kernel("", "return x / x.norm(dim=1, keepdim=True)"),
        {"fails_zeros"},
    ),
    "a variance of nothing": (
        task_of("", "return (x - x.mean(1, True)) / (x.std(1, keepdim=True) + 1e-8)"),
        kernel("", "return (x - x.mean(1, True)) / x.std(1, keepdim=True)"),
        {"fails_zeros", "fails_constants"},
    ),
    "one of equal ones taken for all": (
        task_of("", "return (x == x.amax(1, keepdim=True)).float()"),
        kernel("", "return F.one_hot(x.argmax(1), 32).float()"),
        {"fails_ties", "fails_zeros", "fails_constants", "fails_nan"},
    ),
    "infinities cut off": (
        task_of("", "return x * 2"),
        kernel("", "return x.clamp(-1e30, 1e30) * 2"),
        {"fails_infinities"},
    ),
    "NaN taken for zero": (
        task_of("", "return torch.relu(x)"),
        kernel("", "return torch.where(x > 0, x, 0)"),
        {"fails_nan"},
    ),
    "no rows": (
        task_of("", "return x * 2"),
        kernel("", "return (x.reshape(x.shape[0], -1) * 2).view(-1, 32)"),
        {"fails_empty_rows"},
    ),
}


SHOWN_WITH_IT = {"fails_random_signs", "fails_uneven", "fails_signed", "precision_below_policy"}
SHOWN_WITH_IT |= {"fails_constants", "fails_ties", "fails_zeros"}
"""Flags that low precision, or a parameter left out, may raise as well."""


BY_CHANCE = {"one of equal ones taken for all": {"fails_infinities"}}
"""Flags that take two special numbers in one row, which is not so in every draw."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_CHANCE)
def test_what_shows_by_chance_shows_soon(name: str, check_code: Checked) -> None:
    task, code, _ = FLAGGED[name]
    assert any(BY_CHANCE[name] <= set(check_code(code, task).flags) for _ in range(12))


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", mark_repeated(FLAGGED))
def test_what_the_task_does_not_promise_is_a_flag(name: str, check_code: Checked) -> None:
    task, code, flags = FLAGGED[name]
    found = check_code(code, task)
    assert (found.status, found.reason) == ("correct", None), found
    assert flags <= set(found.flags)
    by_chance = BY_CHANCE.get(name, set[str]())
    assert set(found.flags) - flags <= {"fails_scaled"} | by_chance | (
        SHOWN_WITH_IT if flags & {"precision_below_policy", "fails_perturbed_parameters"} else set()
    )
    assert any("state after the calls" in note for note in found.evidence.notes) == (
        "state_differs" in flags
    )


def test_a_worker_lost_to_a_robustness_call_stays_correct(check_code: Checked) -> None:
    found = check_code(
        kernel("", "import os\nif float(x.max()) > 30: os._exit(3)\nreturn x * 2"),
        task_of("", "return x * 2"),
    )
    assert found.status == "correct"
    assert found.flags == ["fails_scaled"]


def test_parameters_without_counterpart_that_are_ignored_are_named(check_code: Checked) -> None:
    found = check_code(kernel("", "return F.layer_norm(x, (32,))"), AFFINE)
    assert (found.status, found.reason) == ("incorrect", "parameters_ignored"), found
    assert "bias, weight" in found.message
    assert found.flags == ["parameters_renamed"]
    found = check_code(kernel("", "return F.layer_norm(x, (32,)) * 3"), AFFINE)
    assert found.reason == "incorrect_numerical"


@pytest.mark.slow
def test_values_outside_the_domain_of_the_task_are_not_asked_for(check_code: Checked) -> None:
    found = check_code(
        kernel("", "return x.log()"), task_of("", "return torch.log(x)", "torch.rand(48, 32) + 1")
    )
    assert (found.status, found.flags) == ("correct", [])
    refuses = task_of("", "assert x.min() >= 0\nreturn x * 1", "torch.rand(48, 32)")
    found = check_code(kernel("", "assert x.min() >= 0\nreturn x * 1"), refuses)
    assert (found.status, found.flags) == ("correct", [])


def test_seeds_are_secret_until_the_end_and_all_recorded(check_code: Checked) -> None:
    seeds = check_code(*reversed(HONEST["the same"][:2])).evidence.seeds
    assert len(seeds) == len(set(seeds)) >= MOST_CALLS - 1
    assert max(seeds) < 1 << 48
    assert max(seeds) > 1 << 40


@pytest.mark.slow
def test_a_slow_kernel_gets_five_calls(check_code: Checked) -> None:
    counted = (
        "self.n = getattr(self, 'n', 0) + 1\nimport time\n"
        "if self.n == 2: time.sleep(1.1)\nassert self.n < 6, 'called again'\nreturn x * 2"
    )
    found = check_code(kernel("", counted), task_of("", "return x * 2"))
    assert found.status == "correct", found
    assert "called again" not in found.message


def test_tf32_is_judged_by_the_policy(check_code: Checked) -> None:
    rounded = kernel(
        WEIGHT,
        # To nearest, as a conversion to TF32 rounds; cutting off would leave twice the error. One
        # operand alone, since with both the largest of all errors comes near the tolerance.
        "def short(t): return (t.view(torch.int32) + 4096 & -8192).view(torch.float32)\n"
        "return torch.relu(x @ short(self.weight.detach()))",
    )
    strict = check_code(rounded, MATMUL)
    assert (strict.status, strict.reason) == NUMERICAL
    assert strict.evidence.comparison.precision_class == "tf32"
    allowed = check_code(rounded, MATMUL, precision="allow_tf32")
    assert allowed.status == "correct", allowed
    assert allowed.evidence.comparison.precision_class == "tf32"


@pytest.mark.slow
def test_the_class_that_a_policy_allows_ranks(check_code: Checked) -> None:
    code = kernel(POSITIVE_WEIGHT, "return x.half().float() @ self.weight.half().float()")
    allowed = check_code(code, POSITIVE, precision="allow_tf32")
    assert (allowed.status, allowed.flags) == ("correct", [])
    assert allowed.evidence.comparison.precision_class == "tf32"
    lower = check_code(code.replace("half", "bfloat16"), POSITIVE, precision="allow_tf32")
    assert (lower.status, "precision_below_policy" in lower.flags) == ("correct", True)
    assert lower.evidence.comparison.precision_class == "bf16"


@pytest.mark.slow
def test_what_is_right_and_ranks_nothing_is_disturbed(
    judge_code: Callable[..., dict[str, Any]],
) -> None:
    kernels = {
        "precision_below_policy": (
            POSITIVE,
            kernel(POSITIVE_WEIGHT, "return x.half().float() @ self.weight.half().float()"),
        ),
    }
    # `test_diagnosis` judges where a kernel of its own is required.
    assert set(kernels) == UNRANKED - {"custom_required"}
    for flag, (task, code) in kernels.items():
        row = judge_code(code, task)
        assert row["status"] == "correct", row
        assert flag in row["flags"]
        assert row["timings"]
        assert all(timing["noisy"] and timing["disturbed"] for timing in row["timings"])


@pytest.mark.slow
def test_what_is_right_and_another_function_says_so(
    judge_code: Callable[..., dict[str, Any]],
) -> None:
    row = judge_code(kernel(NORM, STATISTICS.format(moved="")), BATCH_NORM)
    assert (row["status"], row["equivalent"]) == ("correct", False), row
    assert "state_differs" in row["flags"]
    # Views leave it out, not the noise of a session: it can be shown on request.
    assert row["timings"]
    assert "state after the calls: norm.running_mean: output 0 float32[" in row["log"]
    assert judge_code(kernel("", "return x * 3"), task_of("", "return x * 2"))["equivalent"] is None
    assert judge_code(kernel("", "return x + x"), task_of("", "return x * 2"))["equivalent"] is True


UPPER = "torch.triu(torch.randn(32, 32))"
COMPLEX = "{'z': torch.complex(torch.rand(48, 32), torch.rand(48, 32))}"
BRANCH = "y = torch.softmax(x @ x.transpose(1, 2) / 8, 2) @ x\nreturn torch.tanh(x + 4e-6 * y)"
RECURRENCE = (
    "h = torch.zeros_like(x[:, 0])\n"
    "for step in range({first}, 256): h = 0.9 * h + x[:, step]\nreturn h"
)
SAMPLES = "torch.rand(16, 256, 8)"
WIDE_WEIGHT = "self.weight = nn.Parameter(torch.randn(1024, 512) / 32)"
QUANTISED = "return torch.round(({}) * 100).to(torch.int32)"
STATISTICS_OF_EVALUATION = "self.norm = nn.BatchNorm1d(32, affine=False)\nself.eval()"
SAME_FUNCTION = {
    "the same": (MATMUL, kernel(WEIGHT, "return (x @ self.weight).clamp(min=0)"), True),
    "numerically fragile": (
        task_of("", "return torch.softmax(x, 1)"),
        kernel("", "e = x.exp()\nreturn e / e.sum(1, keepdim=True)"),
        True,
    ),
    "inputs that have to be contiguous": (
        task_of("", "return x * 2"),
        kernel("", "assert x.is_contiguous()\nreturn x * 2"),
        True,
    ),
    "the structure of a triangle": (
        task_of("", "return torch.triu(x @ x)", UPPER),
        kernel("", "x = torch.triu(x)\nreturn torch.triu(x @ x)"),
        True,
    ),
    "a product in two halves, rounded to steps": (
        task_of(WIDE_WEIGHT, QUANTISED.format("x @ self.weight"), "torch.randn(128, 1024)"),
        kernel(
            WIDE_WEIGHT,
            QUANTISED.format(
                "x[:, :512] @ self.weight[:512] + x[:, 512:] @ self.weight[512:]",
            ),
        ),
        True,
    ),
    "no relu": (RELU_OF_RAND, kernel("", "return x.sum(1)"), False),
    "no weight and bias": (
        task_of("self.norm = nn.LayerNorm(32)", "return self.norm(x)"),
        kernel("self.norm = nn.LayerNorm(32)", "return F.layer_norm(x, (32,))"),
        False,
    ),
    "other names": (
        MATMUL,
        kernel("self.w = nn.Parameter(torch.randn(32, 32))", "return torch.relu(x @ self.w)"),
        False,
    ),
    "dies on what the task does not promise, before weights are changed": (
        MATMUL,
        kernel(
            WEIGHT,
            "import os\nif float(x.abs().mean()) > 2: os._exit(3)\n"
            "return torch.relu(x @ self.weight)",
        ),
        False,
    ),
    "dies on scaled inputs alone": (
        MATMUL,
        kernel(
            WEIGHT,
            "import os\nif float(x.abs().mean()) > 20: os._exit(3)\n"
            "return torch.relu(x @ self.weight)",
        ),
        True,
    ),
    "statistics of evaluation that are never read": (
        task_of(STATISTICS_OF_EVALUATION, "return self.norm(x)"),
        kernel(STATISTICS_OF_EVALUATION, "return x * (1 + 1e-5) ** -0.5"),
        False,
    ),
    "places in a buffer that are never read": (
        task_of("self.register_buffer('order', torch.arange(32))", "return x[:, self.order]"),
        kernel("self.register_buffer('order', torch.arange(32))", "return x.clone()"),
        False,
    ),
    "no relu of complex numbers in a dict": (
        task_of("", "z = x['z']\nreturn torch.relu(z.real) * z.imag", COMPLEX),
        kernel("", "z = x['z']\nreturn z.real * z.imag"),
        False,
    ),
    "a permutation that never permutes": (
        task_of("", "return x[0][x[1]]", "(torch.randn(48, 32), torch.arange(48))"),
        kernel("", "return x[0].clone()"),
        False,
    ),
    "a mask that hides nothing": (
        task_of("", "return x[0] * x[1]", "(torch.randn(8, 8), torch.ones(8, 8).bool())"),
        kernel("", "return x[0].clone()"),
        False,
    ),
    "lengths that are all full": (
        task_of(
            "",
            "return x[0] * (torch.arange(32) < x[1][:, None])",
            "(torch.randn(48, 32), torch.full((48,), 32))",
        ),
        kernel("", "return x[0].clone()"),
        False,
    ),
    "a first state of zeros that is never read": (
        task_of("", "return torch.tanh(x[0] + x[1])", "(torch.randn(48, 32), torch.zeros(48, 32))"),
        kernel("", "return torch.tanh(x[0])"),
        False,
    ),
    "sums of rows by offsets": (
        task_of(
            "",
            "a, at = x\n"
            "return torch.stack([a[at[n]:at[n + 1]].sum(0) for n in range(len(at) - 1)])",
            "(torch.randn(64, 8), torch.arange(0, 65, 16))",
        ),
        kernel(
            "",
            "a, at = x\nrows = torch.arange(4).repeat_interleave(at[1:] - at[:-1])\n"
            "return torch.zeros(4, 8).index_add(0, rows, a)",
        ),
        True,
    ),
    "a summand far below the tolerance": (
        task_of("", "return x[0] + 1e-6 * x[1]", "(torch.randn(48, 32), torch.randn(32))"),
        kernel("", "return x[0].clone()"),
        False,
    ),
    "a branch far below the tolerance": (
        task_of("", BRANCH, "torch.randn(4, 64, 64)"),
        kernel("", "return torch.tanh(x)"),
        False,
    ),
    "a recurrence cut short": (
        task_of("", RECURRENCE.format(first=0), SAMPLES),
        kernel("", RECURRENCE.format(first=140)),
        False,
    ),
    "a gate between zero and 1e-5": (
        task_of(
            "self.gate = nn.Linear(32, 32)", "return x + 1e-5 * torch.sigmoid(self.gate(x)) * x"
        ),
        kernel("self.gate = nn.Linear(32, 32)", "return x.clone()"),
        False,
    ),
    "a bias that the normalization after it removes": (
        task_of(
            "self.fc = nn.Linear(32, 32)", "y = self.fc(x)\nreturn y - y.mean(0, keepdim=True)"
        ),
        kernel(
            "self.fc = nn.Linear(32, 32)",
            "y = F.linear(x - x.mean(0, keepdim=True), self.fc.weight)\nreturn y",
        ),
        True,
    ),
    "kinds that are all zero": (
        task_of(
            "self.kinds = nn.Embedding(2, 32)\n"
            "self.register_buffer('kind', torch.zeros(48, dtype=torch.long))",
            "return x + self.kinds(self.kind)",
        ),
        kernel(
            "self.kinds = nn.Embedding(2, 32)\n"
            "self.register_buffer('kind', torch.zeros(48, dtype=torch.long))",
            "return x + self.kinds.weight[0]",
        ),
        False,
    ),
    "a recurrence as a sum": (
        task_of("", RECURRENCE.format(first=0), SAMPLES),
        kernel(
            "",
            "weights = 0.9 ** torch.arange(255, -1, -1.0)\n"
            "return torch.einsum('btf,t->bf', x, weights)",
        ),
        True,
    ),
    "a recurrence by Fourier transforms": (
        task_of("", RECURRENCE.format(first=0), SAMPLES),
        kernel(
            "",
            "weights = torch.fft.rfft(0.9 ** torch.arange(256.0), 512)\n"
            "y = torch.fft.irfft(torch.fft.rfft(x, 512, 1) * weights[None, :, None], 512, 1)\n"
            "return y[:, 255].contiguous()",
        ),
        True,
    ),
}
"""Task, candidate, and whether the candidate is the function that the task's module is."""


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", SAME_FUNCTION)
def test_a_kernel_is_the_same_function_or_not(name: str, check_code: Checked) -> None:
    task, code, equivalent = SAME_FUNCTION[name]
    found = check_code(code, task)
    assert (found.status, found.reason) == ("correct", None), found
    assert found.evidence.is_equivalent() is equivalent, found.flags
    shown = [note for note in found.evidence.notes if note.partition(":")[0] in NONEQUIVALENT]
    assert bool(shown) is not equivalent
    if found.flags != ["parameters_renamed"] and "dies on" not in name:
        assert all(" at (" in note and "got" in note and "wanted" in note for note in shown)


def test_other_whole_numbers_are_as_valid_as_the_tasks_own() -> None:
    def vary(values: Any, sizes: tuple[int, ...] = ()) -> torch.Tensor | None:
        return vary_whole(torch.tensor(values), [], sizes, 5, may_fail=True)

    places = vary([[0, 1, 2, 3, 4, 5], [9, 8, 7, 7, 6, 2]])  # each row has a range of its own
    assert places is not None
    assert [sorted(row) for row in places.tolist()] == [[0, 1, 2, 3, 4, 5], [2, 6, 7, 7, 8, 9]]
    groups = vary([0, 0, 1, 1, 1, 3, 3])  # sorted, so that it stays sorted
    assert groups is not None
    assert groups.tolist() == sorted(groups.tolist())
    assert {*groups.tolist()} <= {0, 1, 3}
    offsets = vary([0, 4, 8, 12, 16], (16, 3))
    assert offsets is not None
    assert offsets.tolist() == sorted(offsets.tolist())
    assert (offsets[0], offsets[-1]) == (0, 16)
    mask = vary([True] * 64)
    assert mask is not None
    assert 0 < int((~mask).sum()) < 32
    tokens = vary([1] * 64)
    assert tokens is not None
    assert {*tokens.tolist()} == {0, 1}
    assert vary(3) is None
    assert vary([2, 2, 2]) is None
    kinds = vary([0] * 64)
    assert kinds is not None
    assert {*kinds.tolist()} == {0, 1}
    lengths = vary([9, 9, 9], (9, 3))
    assert lengths is not None
    assert 1 <= min(lengths.tolist()) < max(lengths.tolist()) == 9


def test_the_view_repeats_the_rule_of_the_judge() -> None:
    text = read_view("nonequivalent")
    listed = set(re.findall(r"'([a-z_]+)'", text.partition("list_has_any")[2].partition("])")[0]))
    assert listed <= set(FLAGS)
    assert listed - NONEQUIVALENT == {"fails_positive", "fails_random_signs", "fails_signed"}
    assert listed >= NONEQUIVALENT


def test_a_state_is_taken_in_as_many_pieces_as_it_needs(bench: Bench) -> None:
    code = kernel(
        "self.large = nn.Parameter(torch.arange(90_001.0))\n"
        "self.register_buffer('count', torch.tensor(3))\n"
        "self.none = nn.Parameter(torch.ones(0, 4))",
        "return x",
    )
    arm = bench.start_candidate({"kernel.py": code}, Sizes(64, 64), LIMITS, DEADLINES)
    try:
        arm.load("kernel.py", "ModelNew", {})
        arm.construct(WEIGHT_SEED, [])
        wanted = {
            "large": torch.zeros(90_001),
            "count": torch.tensor(0),
            "none": torch.ones(0, 4),
        }
        found = arm.current_state(wanted)
        assert torch.equal(found["large"], torch.arange(90_001.0))
        assert found["count"].equal(torch.tensor(3))
        assert found["none"].shape == (0, 4)
        with pytest.raises(Failed):
            arm.current_state({"other": torch.zeros(3)})
    finally:
        arm.end()


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("task", "code"),
    [
        (DROPOUT, kernel("", "return F.dropout(x, 0.5, True)")),
        (MEAN_OF_ALL_CALLS, MEAN_OF_ALL_CALLS.replace("Model(", "ModelNew(")),
        (BUFFER_OF_FIRST_CALL, BUFFER_OF_FIRST_CALL.replace("Model(", "ModelNew(")),
    ],
)
def test_timed_outputs_that_cannot_be_verified_are_a_flag(
    task: str, code: str, judge_code: Callable[..., dict[str, Any]]
) -> None:
    row = judge_code(code, task)
    assert row["status"] == "correct", row
    assert "timed_outputs_unverified" in row["flags"]


def test_a_reference_advances_with_every_call_and_forgets_at_a_reset(references: Any) -> None:
    reference = references(REMEMBERS)
    inputs = reference.inputs(1)
    first = reference.answer(inputs).value
    second = reference.answer(inputs).value
    assert not torch.equal(first, second)
    reference.reset()
    assert torch.equal(reference.answer(inputs).value, first)
    norm = references(BATCH_NORM)
    inputs = norm.inputs(1)
    assert torch.equal(norm.answer(inputs).value, norm.answer(inputs).value)


def test_a_reference_that_draws_numbers_follows_the_seed_of_the_call(references: Any) -> None:
    reference = references(DROPOUT)
    inputs = reference.inputs(1)
    one, same, other = (reference.answer(inputs, seed).value for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert reference.draws
    assert not reference.repeatable
    assert not references(MATMUL).draws


def test_code_that_pins_its_element_type_is_its_own_oracle(references: Any) -> None:
    pinned = task_of(
        "self.table = nn.Embedding(9, 4)",
        "return (self.table(x) @ torch.ones(4, 2, dtype=torch.float32)).sum(1)",
        "torch.randint(0, 9, (5, 3))",
    )
    found = references(pinned)
    expected = found.answer(found.inputs(3))
    [exact] = expected.exact
    assert exact is not None
    assert torch.equal(exact, expected.value.double())
    embedded = task_of(
        "self.table = nn.Embedding(9, 4)", "return self.table(x)", "torch.randint(0, 9, (5, 3))"
    )
    found = references(embedded)
    [exact] = found.answer(found.inputs(3)).exact
    assert exact is not None
    assert exact.dtype == torch.float64


def test_double_precision_moves_to_the_processor_where_memory_is_short(references: Any) -> None:
    short = (
        task_of(
            "",
            "if x.dtype == torch.float64 and torch.rand(()).item() >= 0 and not tried:\n"
            "    tried.append(x.device.type)\n"
            "    raise torch.OutOfMemoryError('no memory left')\n"
            "return x * 3",
        )
        + "\n\ntried = []\n"
    )
    reference = references(short.replace("torch.rand(()).item() >= 0 and ", ""))
    expected = reference.answer(reference.inputs(1))
    [exact] = expected.exact
    assert exact is not None
    assert torch.equal(exact, expected.value.double())


def test_perturbed_weights_keep_what_must_be_positive_and_what_is_tied(references: Any) -> None:
    reference = references(
        task_of(
            "self.norm = nn.BatchNorm1d(32)\nself.one = nn.Linear(32, 32)\n"
            "self.two = nn.Linear(32, 32)\nself.two.weight = self.one.weight",
            "return self.two(self.one(self.norm(x)))",
        )
    )
    before, after = reference.state(), reference.perturb(5)
    assert float(after["norm.running_var"].min()) >= 0
    assert not torch.equal(after["norm.running_var"], before["norm.running_var"])
    assert torch.equal(after["norm.num_batches_tracked"], before["norm.num_batches_tracked"])
    assert torch.equal(after["one.weight"], after["two.weight"])
    step = after["one.weight"] - before["one.weight"]
    assert float(step.std()) == pytest.approx(0.3, rel=0.1)
    inputs = reference.inputs(1)
    plain = reference.answer(inputs).value
    reference.load(after)
    assert not torch.equal(reference.answer(inputs).value, plain)
    reference.reset()
    assert torch.equal(reference.answer(inputs).value, plain)
