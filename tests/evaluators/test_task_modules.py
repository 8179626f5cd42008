"""How a task's module is built, seeded and remembered, in the workers that run it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from evaluators.judge import Config, judge
from evaluators.judging import calls
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.references.task import ReferenceFailed

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""
TASK = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(24, 16)]


def get_init_inputs():
    return []
"""


def task_of(init: str, forward: str, head: str = "") -> str:
    """Return the text of a task."""
    bodies = ("\n        ".join((part or "pass").splitlines()) for part in (init, forward))
    built, called = bodies
    return head + HEAD + TASK.format(init=built, forward=called)


def make_candidate(task: str) -> str:
    """Return the task's own module as a candidate."""
    return task.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]


LINE = "self.fc = nn.Linear(16, 16)\n"
UNCOPYABLE = {
    "weight_norm": task_of(
        "self.fc = nn.utils.weight_norm(nn.Linear(16, 16))", "return self.fc(x)"
    ),
    "spectral_norm": task_of(
        "self.fc = nn.utils.spectral_norm(nn.Linear(16, 16))", "return self.fc(x)"
    ),
    "views in a list": task_of(
        LINE + "self.parts = [self.fc.weight[:8], (self.fc.weight[8:],)]",
        "return torch.cat([x @ self.parts[0].t(), x @ self.parts[1][0].t()], 1) + self.fc.bias",
    ),
    "a computed tensor": task_of(
        LINE + "self.w = self.fc.weight * 2", "return F.linear(x, self.w, self.fc.bias)"
    ),
    "a hook with a closure": task_of(
        LINE + "scale = nn.Parameter(torch.full((16,), 2.0))\nself.scale = scale\n"
        "self.fc.register_forward_hook(lambda m, i, o: o * scale)",
        "return self.fc(x)",
    ),
    "a lambda, a lock, an open file and an iterator": task_of(
        LINE + "import threading\nself.act = lambda y: self.fc(y).relu()\n"
        "self.lock, self.file = threading.Lock(), open(__file__)\n"
        "self.steps = (n for n in iter(int, 1))",
        "next(self.steps)\nwith self.lock: return self.act(x)",
    ),
}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", UNCOPYABLE)
def test_modules_that_cannot_be_copied_are_judged(
    name: str, check_code: Callable[..., Any]
) -> None:
    task = UNCOPYABLE[name]
    found = check_code(make_candidate(task), task, calls=6)
    assert (found.status, found.reason, found.flags) == ("correct", None, []), found.message


def test_the_double_precision_module_follows_the_weights(references: Callable[..., Any]) -> None:
    """A tensor that is a view of a weight, or in a closure, is the weight's in both precisions."""
    task = UNCOPYABLE["views in a list"]
    reference = references(task)
    inputs = reference.inputs(1)
    for state in (reference.state(), reference.perturb(3)):
        reference.load(state)
        expected = reference.answer(inputs)
        weight, bias = (state[f"fc.{name}"].double() for name in ("weight", "bias"))
        right = inputs[0].double() @ weight.t() + bias
        assert expected.exact[0].allclose(right, rtol=1e-12, atol=1e-12)
    reference.reset()
    weight, bias = (reference.state()[f"fc.{name}"] for name in ("weight", "bias"))
    assert reference.value(inputs).allclose(inputs[0] @ weight.t() + bias, atol=1e-5)


RAGGED = (
    HEAD
    + """
class Model(nn.Module):
    def forward(self, parts, threshold):
        return [part[part > threshold] * 2 for part in parts], parts[0].gt(threshold).nonzero()


def get_inputs():
    lengths = [2 ** int(torch.randint(4, 12, ())) for _ in range(int(torch.randint(1, 5, ())))]
    return [[torch.randn(length) for length in lengths], float(torch.rand(()) * 6 - 1)]


def get_init_inputs():
    return []
"""
)


@pytest.mark.slow
def test_sizes_that_differ_from_call_to_call_are_judged(judge_code: Callable[..., Any]) -> None:
    """Inputs and answers grow beyond those of the first call, and answers may be empty."""
    row = judge_code(make_candidate(RAGGED), RAGGED, calls=10)
    assert (row["status"], row["reason"]) == ("correct", None), row
    assert row["equivalent"] is not False
    padded = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, parts, threshold):
        kept = [torch.zeros_like(part) for part in parts]
        for part, some in zip(parts, kept):
            chosen = part[part > threshold]
            some[: len(chosen)] = chosen * 2
        return kept, parts[0].gt(threshold).nonzero()
"""
    row = judge_code(padded, RAGGED)
    assert (row["status"], row["reason"]) == ("incorrect", "incorrect_shape"), row


STEP = "self.register_buffer('{name}', torch.zeros(16))"
AVERAGE = "self.{name}.lerp_(x.mean(0), 0.1)\nreturn x - self.{name}"
STATES = {
    "a buffer of another name, on which answers depend": (
        task_of(STEP.format(name="mean"), AVERAGE.format(name="mean")),
        task_of(STEP.format(name="own"), AVERAGE.format(name="own")),
        set[str](),
    ),
    "a plain attribute where the task has a buffer": (
        task_of(STEP.format(name="mean"), AVERAGE.format(name="mean")),
        task_of("self.mean = torch.zeros(16)", AVERAGE.format(name="mean")),
        set[str](),
    ),
    "a cache in a list": (
        task_of("self.seen = []", "self.seen.append(x.sum())\nreturn x + sum(self.seen)"),
        task_of("self.sum = 0", "self.sum = self.sum + x.sum()\nreturn x + self.sum"),
        set[str](),
    ),
    "inputs of earlier calls": (
        task_of("self.before = []", "self.before.append(x)\nreturn x - self.before[-2:][0]"),
        task_of(
            "self.last = None",
            "y = x - (x if self.last is None else self.last)\nself.last = x\nreturn y",
        ),
        set[str](),
    ),
    "a buffer on which nothing depends": (
        task_of(STEP.format(name="calls"), "self.calls += 1\nreturn x * 2"),
        task_of("", "return x * 2"),
        set[str](),
    ),
    "a candidate's own attribute of a name of the task": (
        task_of("self.last = None", "self.last = x.sum()\nreturn x * 2"),
        task_of("self.last = torch.zeros(3)", "self.last += 1\nreturn x * 2"),
        set[str](),
    ),
    "statistics of the same name left alone": (
        task_of("self.norm = nn.BatchNorm1d(16)", "return self.norm(x)"),
        task_of(
            "self.norm = nn.BatchNorm1d(16)",
            "return F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)",
        ),
        {"state_differs"},
    ),
    "statistics that are not there": (
        task_of("self.norm = nn.BatchNorm1d(16)", "return self.norm(x)"),
        task_of(
            "self.norm = nn.Module()\nself.norm.weight = nn.Parameter(torch.ones(16))\n"
            "self.norm.bias = nn.Parameter(torch.zeros(16))",
            "return F.batch_norm(x, None, None, self.norm.weight, self.norm.bias, True)",
        ),
        {"state_differs"},
    ),
    "a large weight that a call has taken away": (
        task_of("self.fc = nn.Linear(16, 999, bias=False)", "return self.fc(x)"),
        task_of(
            "self.fc = nn.Linear(16, 999, bias=False)\nself.own = None",
            "if self.own is None:\n    self.own = self.fc.weight.clone()\n"
            "    self.fc.weight.zero_()\nreturn x @ self.own.t()",
        ),
        {"state_differs"},
    ),
}


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", STATES)
def test_a_state_counts_through_answers_and_by_name(
    name: str, check_code: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beyond this many bytes, secret pieces of a state are compared.
    monkeypatch.setattr(calls, "CHEAP_BYTES", 1 << 14)
    task, code, flags = STATES[name]
    found = check_code(make_candidate(code), task, calls=6)
    assert (found.status, found.reason) == ("correct", None), found
    assert set(found.flags) & {"state_differs"} == flags, found.evidence.notes


FILES = {
    "torch.jit.script": task_of(
        "",
        "return swish(x)",
        "import torch\n\n@torch.jit.script\ndef swish(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * torch.sigmoid(x)\n",
    ),
    "its own source, a dataclass and a guard": task_of(
        "self.setting = Setting()",
        "return x * self.setting.factor",
        "from __future__ import annotations\nimport inspect, os, pickle, sys, typing\n"
        "from dataclasses import dataclass\n\n@dataclass\nclass Setting:\n    factor: int = 2\n\n"
        "assert 'factor' in inspect.getsource(Setting)\n"
        "assert os.path.samefile(__file__, inspect.getfile(Setting)) and __spec__ is not None\n"
        "assert typing.get_type_hints(Setting) == {'factor': int}\n"
        "assert pickle.loads(pickle.dumps(Setting())) == Setting()\n"
        "assert open(os.path.join(os.path.dirname(__file__), os.path.basename(__file__))).read()\n"
        "if __name__ == '__main__': sys.exit('run me by a benchmark')\n",
    ),
    "a library of operators, which can be defined once": task_of(
        "",
        "return torch.ops.tests_of_tasks.twice(x)",
        "import torch\nlibrary = torch.library.Library('tests_of_tasks', 'DEF')\n"
        "library.define('twice(Tensor x) -> Tensor')\n"
        "library.impl('twice', lambda x: x * 2, 'CompositeExplicitAutograd')\n",
    ),
    "numbers drawn at import": task_of(
        "",
        "return x @ TABLE + float(SHIFT)",
        "import torch, numpy\nTABLE = torch.randn(16, 16)\nSHIFT = numpy.random.rand()\n",
    ),
    "defaults set at import": task_of(
        "self.fc = nn.Linear(16, 16)\nself.shift = torch.randn(16)",
        "return self.fc(x) + self.shift + torch.zeros(16)",
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_default_device('cpu')\n"
        "torch.backends.mkldnn.enabled = False\ntorch.manual_seed(0)\n",
    ),
    "a cache of the class": task_of(
        "",
        "if 'mask' not in CACHE: CACHE['mask'] = torch.tril(torch.ones(16, 16))\n"
        "return x @ CACHE['mask']",
        "CACHE = {}\n",
    ),
}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", FILES)
def test_tasks_and_kernels_are_imported_like_files(
    name: str, check_code: Callable[..., Any]
) -> None:
    task = FILES[name]
    found = check_code(make_candidate(task), task, calls=6)
    assert (found.status, found.reason, found.flags) == ("correct", None, []), found.message


def test_what_a_task_sets_at_import_does_not_lower_the_double_precision(
    references: Callable[..., Any],
) -> None:
    task = task_of(
        "self.fc = nn.Linear(16, 16)",
        "return self.fc(x) + torch.full((16,), 0.1)",
        "import torch\ntorch.set_default_dtype(torch.bfloat16)\n",
    )
    reference = references(task)
    inputs = reference.inputs(1)
    expected, state = reference.answer(inputs), reference.state()
    assert expected.value.dtype == torch.bfloat16
    x, weight, bias = (t.double() for t in (inputs[0], state["fc.weight"], state["fc.bias"]))
    right = x @ weight.t() + bias + 0.1
    assert expected.exact[0].allclose(right, rtol=1e-12, atol=1e-12)


RANDOM = {
    "numpy, a new generator of numpy, and Python": (
        "(numpy.random.rand(24, 16) + numpy.random.default_rng().random(16) + random.random())"
    ),
    "a generator of the module": "self.own.random((24, 16))",
    "the state of a generator": (
        "torch.rand(24, 16, generator=torch.Generator().set_state(torch.get_rng_state())).numpy()"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RANDOM)
def test_numbers_from_numpy_and_python_are_the_same_on_both_sides(
    name: str, check_code: Callable[..., Any]
) -> None:
    noise = f"torch.from_numpy({RANDOM[name]}).float()"
    task = task_of(
        "self.own = numpy.random.default_rng(3)",
        f"return x + {noise}",
        "import numpy, random\n",
    ).replace("[torch.randn(24, 16)]", "[torch.from_numpy(numpy.random.rand(24, 16)).float()]")
    candidate = make_candidate(task)
    found = check_code(candidate, task, calls=6)
    assert (found.status, found.reason, found.flags) == ("correct", None, []), found.message
    found = check_code(candidate.replace(noise, "0.5"), task, calls=6)
    assert (found.status, found.reason) == ("incorrect", "incorrect_numerical"), found


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("head", "forward", "message"),
    [
        ("import sys\nsys.exit(3)\n", "return x", "cannot be built: it calls sys.exit(3)"),
        ("import sys\n", "sys.exit('no')", "forward() failed: it calls sys.exit('no')"),
        ("import os\n", "os._exit(3)", "worker is gone"),
    ],
)
def test_a_task_that_exits_is_at_fault_and_a_kernel_that_exits_has_crashed(
    head: str, forward: str, message: str, references: Callable[..., Any], check_code: Any
) -> None:
    task = task_of("", forward, head)

    def answer() -> None:
        reference = references(task)
        reference.answer(reference.inputs(1))

    with pytest.raises(ReferenceFailed, match=re.escape(message)):
        answer()
    found = check_code(make_candidate(task), task_of("", "return x"))
    assert (found.status, found.reason) == ("crash", "early_exit"), found


def test_a_constructor_that_is_not_repeatable_is_copied_or_named(
    references: Callable[..., Any],
) -> None:
    drawn = "import os\nself.w = nn.Parameter(torch.tensor(list(os.urandom(16))).float())\n"
    reference = references(task_of(drawn, "return x * self.w"))
    inputs, [weight] = reference.inputs(1), reference.state().values()
    for _ in range(2):
        assert reference.answer(inputs).exact[0].equal(inputs[0].double() * weight)
        reference.reset()
    locked = drawn + "import threading\nself.lock = threading.Lock()"
    with pytest.raises(ReferenceFailed, match=r"limit module_copies; `evaluators doctor"):
        references(task_of(locked, "return x * self.w"))


ON_GPU = {
    "views of a weight": UNCOPYABLE["views in a list"],
    "noise from numpy": task_of(
        LINE,
        "return self.fc(x) + torch.from_numpy(numpy.random.rand(24, 16)).float()",
        "import numpy\n",
    ),
    "sizes that differ": RAGGED,
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_tasks_of_these_kinds_are_judged_on_a_gpu(name: str, gpu_bench: Bench) -> None:
    task = ON_GPU[name]
    case = Case(
        kernel_id=name, task_id=name, workload_id="w", code=make_candidate(task), task_code=task
    )
    config = Config(
        draw_shapes=0,
        import_s=120.0,
        call_s=120.0,
        timing_s=0.05,
        timing_limit_s=0.5,
        diagnosis=False,
    )
    [row] = judge(case, gpu_bench, config)["evaluations"]
    assert (row["status"], row["reason"]) == ("correct", None), row


@pytest.mark.parametrize("change", ["x.data = x * 2", "x.resize_(2, 3)", "x.t_()"])
def test_an_input_keeps_its_memory_and_shape(change: str, references: Callable[..., Any]) -> None:
    reference = references(task_of("", f"{change}\nreturn x * 2"))
    with pytest.raises(ReferenceFailed, match="another shape or other memory"):
        reference.answer(reference.inputs(1))


STATEFUL = """
class Model(nn.Module):
    def forward(self, x, state):
        {change}
        return x * 2


def get_inputs():
    return [torch.randn(3, 2), {{"step": 1, "sizes": [2, 3]}}]
"""


@pytest.mark.parametrize(
    "change", ["state['step'] += 1", "state['sizes'].pop()", "state['new'] = {1, 2}"]
)
def test_values_in_containers_of_inputs_stay(change: str, references: Callable[..., Any]) -> None:
    reference = references(HEAD + STATEFUL.format(change=change))
    with pytest.raises(ReferenceFailed, match=r"limit (containers|value_types);"):
        reference.answer(reference.inputs(1))


STRUCTURED = {
    "a symmetric matrix that is read by columns": (
        "x = torch.randn(32, 32)\n    return [x + x.T]",
        "return x @ x[:, :2]",
        "return x.T @ x[:, :2]",
    ),
    "a factorization that fails on other matrices": (
        "x = torch.randn(2, 32, 32)\n    return [x @ x.mT / 32 + 0.1 * torch.eye(32)]",
        "return torch.linalg.cholesky(x)",
        "return torch.linalg.cholesky(x)",
    ),
    "rows that sum to one, and an error on others": (
        "return [torch.randn(8, 32).softmax(-1)]",
        "return x / x.sum(-1, keepdim=True)",
        "assert (x.sum(-1) - 1).abs().max() < 1e-3; return x.clone()",
    ),
}
STRUCTURED_TASK = """
class {name}(nn.Module):
    def forward(self, x):
        {forward}


def get_inputs():
    {inputs}
"""


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", STRUCTURED)
def test_a_kernel_may_rely_on_what_all_inputs_have(
    name: str, check_code: Callable[..., Any]
) -> None:
    inputs, forward, kernel = STRUCTURED[name]
    task, candidate = (
        HEAD + STRUCTURED_TASK.format(name=kind, forward=body, inputs=inputs)
        for kind, body in (("Model", forward), ("ModelNew", kernel))
    )
    outcome = check_code(candidate, task)
    assert outcome.status == "correct", outcome


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("inputs", ["[]", "[3.0, {'scale': 2}]", "[torch.ones(0, 4)]"])
def test_inputs_that_take_no_memory_are_judged(inputs: str, judge_code: Callable[..., Any]) -> None:
    task, candidate = (
        HEAD + STRUCTURED_TASK.format(name=name, forward=forward, inputs=f"return {inputs}")
        for name, forward in (
            ("Model", "return torch.arange(6.0) * len(values)"),
            ("ModelNew", "return len(values) * torch.arange(6.0)"),
        )
    )
    task, candidate = (text.replace("(self, x)", "(self, *values)") for text in (task, candidate))
    row = judge_code(candidate, task, protocol="training")
    assert row["status"] == "correct", row
