"""Kernels and tasks in the forms that people write: entry points, formats of tasks, own rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import store
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.scheduling.cases import read_kernel, read_task
from store.errors import FlywheelError
from store.importers.kernelbook import adapt_task
from store.importers.reading.task_formats import FORMATS

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x) + y


def get_inputs():
    return [torch.randn(8, 16), torch.randn(16)]


def get_init_inputs():
    return []
"""
CLASS = """
import torch


class {name}(torch.nn.Module):
    def forward(self, x, y):
        return x.clamp(min=0) + y
"""
FUNCTION = "def {name}(x, y):\n    return x.clamp(min=0) + y\n"
LAYER = """
import torch
import torch.nn as nn


def forward_fn(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)


class Model(nn.Module):
    def __init__(self, width, eps=1e-5):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))
        self.eps = eps

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.bias, self.eps)


def get_inputs(rows=4, width=8):
    return [torch.randn(rows, width)]


input_names = ["x"]
"""
SETTINGS = {
    "single_input_configs": [{"rows": 6}],
    "single_init_configs": [{"eps": 1e-5}],
    "single_shared_configs": [{"width": 16}, {"width": 32}],
}
LAYER_CLASS = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.bias = nn.Parameter(torch.randn(width))
        self.eps = eps

    def forward(self, x):
        mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        return (x - mean) * (var + self.eps).rsqrt() * self.weight + self.bias
"""
LAYER_FUNCTION = """
def forward_fn(x, weight, bias, eps):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    return (x - mean) * (var + eps).rsqrt() * weight + bias{wrong}
"""
PRODUCT = {
    "problem/reference.py": """
import torch
from task import input_t
from utils import make_check


def generate_input(rows: int, seed: int) -> input_t:
    generator = torch.Generator().manual_seed(seed)
    a = torch.rand(rows, 64, generator=generator)
    return a, torch.rand(64, rows, generator=generator), torch.empty(rows, rows)


def ref_kernel(data: input_t) -> torch.Tensor:
    a, b, c = data
    c[...] = a @ b
    return c


check_implementation = make_check(ref_kernel, rtol=2e-2, atol=1e-3)
""",
    "problem/task.py": "import torch\n\ninput_t = tuple[torch.Tensor, ...]\n",
    "problem/task.yml": """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
lang: "py"
tests:
  - {"rows": 8, "seed": 1}
benchmarks:
  - {"rows": 16, "seed": 2}
  - {"rows": 32, "seed": 3}
""",
    "utils.py": """
import torch


def make_check(reference, **limits):
    def check(data, output):
        same = torch.allclose(output, reference(data), **limits)
        return same, "" if same else "mismatch found"

    return check
""",
}
SUBMISSION = """
from task import input_t


def custom_kernel(data: input_t):
    a, b, c = data
    {body}
"""
DEFINITION = {
    "name": "scaled_gemm",
    "op_type": "gemm",
    "axes": {"M": {"type": "var"}, "K": {"type": "const", "value": 32}},
    "inputs": {
        "A": {"shape": ["M", "K"], "dtype": "float32"},
        "B": {"shape": ["K", "K"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"C": {"shape": ["M", "K"], "dtype": "float32"}},
    "reference": "import torch\n\n\ndef run(A, B, scale):\n    return torch.matmul(A, B) * scale\n",
}
SHAPED = """
import torch

ROWS = 4


class Model(torch.nn.Module):
    def forward(self, x):
        return x.half() * 3


def get_inputs():
    return [torch.randn(ROWS, 8)]
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def check(
    bench: Bench,
    task: Path,
    kernel: Path,
    entry_point: str | None = None,
    workload: str | None = None,
    **limits: Any,
) -> dict[str, Any]:
    """Judge a kernel as `evaluators check` does; return its row, and the entry point."""
    text = read_task(str(task), None)
    code = read_kernel(kernel, entry_point, text)
    case = text.make_case(code, "cpu", workload)
    options: dict[str, Any] = {"protocol": "training", "calls": 3, "robustness": False}
    options |= {
        "diagnosis": False,
        "timing_limit_s": 0.3,
        "timing_s": 0.05,
        "call_s": 120.0,
        **limits,
    }
    config = Config(draw_shapes=0, **options)
    [row] = judge(case, bench, config)["evaluations"]
    return {**row, "entry_point": code.entry_point, "axes": case.axes}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("solution", FUNCTION.format(name="solution")),
        ("Model", CLASS.format(name="Model")),
        ("add_relu", f"def _one(x): ...\n{FUNCTION.format(name='add_relu')}"),
    ],
)
def test_every_kind_of_entry_point_is_judged(
    bench: Bench, tmp_path: Path, name: str, text: str
) -> None:
    folder = write(tmp_path, {"task.py": TASK, "kernel.py": text})
    row = check(bench, folder / "task.py", folder / "kernel.py")
    assert (row["status"], row["entry_point"]) == ("correct", name), row


@pytest.mark.slow
def test_files_may_begin_with_a_byte_order_mark(bench: Bench, tmp_path: Path) -> None:
    task = write(tmp_path, {"task.py": f"\ufeff{TASK}"}) / "task.py"
    function = FUNCTION.format(name="add_relu")
    kernel = write(tmp_path, {"kernel.py": f"\ufeff{function}"}) / "kernel.py"
    row = check(bench, task, kernel)
    assert (row["status"], row["entry_point"]) == ("correct", "add_relu"), row
    marked = {name: f"\ufeff{text}" for name, text in PRODUCT.items()}
    folder = write(tmp_path / "marked", marked) / "problem"
    body = SUBMISSION.format(body="return a @ b")
    submission = write(tmp_path, {"submission.py": f"\ufeff{body}"}) / "submission.py"
    row = check(bench, folder, submission, workload="test_1")
    assert row["status"] == "correct", row


@pytest.mark.slow
def test_the_option_chooses_a_function_of_a_folder(bench: Bench, tmp_path: Path) -> None:
    task = write(tmp_path, {"task.py": TASK}) / "task.py"
    folder = write(
        tmp_path / "kernel",
        {
            "parts/ops.py": "def clip(x):\n    return x.clamp(min=0)\n",
            "main.py": "from parts.ops import clip\n\n\ndef add(x, y):\n    return clip(x) + y\n"
            "\n\ndef wrong(x, y):\n    return x + y\n",
        },
    )
    with pytest.raises(FlywheelError, match="more than one entry point: add, wrong"):
        read_kernel(folder, None, read_task(str(task), None))
    assert check(bench, task, folder, "main:add")["status"] == "correct"
    assert check(bench, task, folder, "main.py::wrong")["status"] == "incorrect"
    row = check(bench, task, folder, "main:missing")
    assert (row["status"], row["reason"]) == ("compile_error", "no_entry_point"), row


@pytest.mark.slow
def test_robust_kbench_takes_classes_and_functions(bench: Bench, tmp_path: Path) -> None:
    files = {"func_forward.py": LAYER, "config_forward.json": json.dumps(SETTINGS)}
    task = write(tmp_path / "layer", files)
    assert list(read_task(str(task), None).axes) == ["single_1", "single_2", "multi_1"]
    kernels = write(
        tmp_path,
        {
            "class.py": LAYER_CLASS,
            "function.py": LAYER_FUNCTION.format(wrong=""),
            "near.py": LAYER_FUNCTION.format(wrong=" + 5e-4"),
            "wrong.py": LAYER_FUNCTION.format(wrong=" + 5e-2"),
        },
    )
    assert check(bench, task, kernels / "class.py")["status"] == "correct"
    row = check(bench, task, kernels / "function.py", workload="single_2")
    assert row["status"] == "correct", row
    assert json.loads(row["axes"])["SETTINGS"]["init"] == {"eps": 1e-5, "width": 32}
    near = check(bench, task, kernels / "near.py")
    assert near["status"] == "correct", near
    assert "accepted_by_task" in near["flags"]
    assert near["log"].splitlines()[:2] == [
        "entry point forward_fn",
        "tolerance of the task: rtol 0.001, atol 0.001",
    ]
    assert "beyond the judge's own tolerance in call 1: output 0 float32[6, 16] at" in near["log"]
    wrong = check(bench, task, kernels / "wrong.py")
    assert wrong["status"] == "incorrect", wrong
    assert "the task's own tolerance (rtol 0.001, atol 0.001)" in wrong["message"]


def test_a_backward_task_is_refused_by_its_limit(tmp_path: Path) -> None:
    task = write(tmp_path, {"func_backward.py": LAYER})
    for path in (task, task / "func_backward.py"):
        with pytest.raises(FlywheelError, match="no backward pass") as raised:
            read_task(str(path), None)
        assert "evaluators doctor --limits" in str(raised.value.hint)


@pytest.mark.slow
def test_gpu_mode_is_judged_by_its_own_checker(bench: Bench, tmp_path: Path) -> None:
    task = write(tmp_path, PRODUCT) / "problem"
    text = read_task(str(task), None)
    assert list(text.axes) == ["benchmark_1", "benchmark_2", "test_1"]
    assert text.file is not None
    assert text.file.rule == "the task's own checker, check_implementation"
    bodies = {
        "writes into an input": ("c[...] = a @ b\n    return c", "correct", False),
        "returns a new tensor": ("return a @ b", "correct", False),
        "rounds to bfloat16": ("return (a.bfloat16() @ b.bfloat16()).float()", "correct", True),
        "is wrong": ("return a @ b * 1.1", "incorrect", False),
    }
    for name, (body, status, excused) in bodies.items():
        kernel = write(tmp_path, {"submission.py": SUBMISSION.format(body=body)}) / "submission.py"
        row = check(bench, task / "reference.py", kernel, workload="test_1")
        assert row["status"] == status, (name, row)
        assert ("accepted_by_task" in row["flags"]) is excused, (name, row)


def test_a_checker_may_be_stricter_than_the_judge(bench: Bench, tmp_path: Path) -> None:
    strict = PRODUCT["problem/reference.py"] + (
        "\n\ndef check_implementation(data, output):\n"
        "    return '' if torch.equal(output, ref_kernel(data)) else 'not the same bits'\n"
    )
    task = write(tmp_path, {**PRODUCT, "problem/reference.py": strict}) / "problem"
    near = SUBMISSION.format(body="return a @ b + 1e-5")
    kernel = write(tmp_path, {"submission.py": near}) / "submission.py"
    row = check(bench, task, kernel, workload="test_1")
    assert row["status"] == "incorrect", row
    assert "the task's own checker refuses the output: not the same bits" in row["message"]


@pytest.mark.slow
def test_a_flashinfer_definition_needs_a_workload(bench: Bench, tmp_path: Path) -> None:
    task = write(tmp_path, {"definitions/gemm/d.json": json.dumps(DEFINITION)})
    task /= "definitions/gemm/d.json"
    run = "def run(A, B, scale):\n    return (A @ B) * scale\n"
    kernel = write(tmp_path, {"main.py": run}) / "main.py"
    with pytest.raises(FlywheelError, match="no workload for its axes M, INPUT_scale") as raised:
        check(bench, task, kernel)
    assert "--workload M=…" in str(raised.value.hint)
    row = check(bench, task, kernel, workload="M=5,scale=0.5")
    assert row["status"] == "correct", row
    workload = {"uuid": "w1", "axes": {"M": 7}, "inputs": {"scale": {"type": "scalar", "value": 2}}}
    line = json.dumps({"definition": "scaled_gemm", "workload": workload})
    write(tmp_path, {"workloads/gemm/scaled_gemm.jsonl": line})
    row = check(bench, task, kernel)
    assert (row["status"], row["axes"]) == ("correct", '{"INPUT_scale": 2, "M": 7}'), row


@pytest.mark.slow
def test_a_hard_task_has_shapes_and_a_tolerance(bench: Bench, tmp_path: Path) -> None:
    files = {
        "reference.py": SHAPED,
        "shapes.py": 'SHAPES = [{"ROWS": 3}, {"ROWS": 5}]\n',
        "problem.yaml": "name: scale\ntolerance:\n  float16: 0.05\n",
    }
    task = write(tmp_path / "scale", files)
    text = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    kernel = write(tmp_path, {"solution.py": f"{text}        return (x * 3.06).half()\n"})
    row = check(bench, task, kernel / "solution.py", workload="shape_2")
    assert (row["status"], row["axes"]) == ("correct", '{"ROWS": 5}'), row
    assert "accepted_by_task" in row["flags"]


@pytest.mark.parametrize(
    ("files", "path", "detail"),
    [
        ({"notes.txt": ""}, ".", "no file in it is a task"),
        ({"task.py": "x = 1"}, "task.py", "it does not define Model and get_inputs"),
        ({"task.py": "def f(:"}, "task.py", "it is not Python"),
        ({"data.json": "[1]"}, "data.json", "a definition has axes, inputs and reference"),
        ({"reference.py": "def generate_input(): ..."}, ".", "it does not define ref_kernel"),
    ],
)
def test_unknown_forms_are_refused_with_all_forms(
    files: dict[str, str], path: str, detail: str, tmp_path: Path
) -> None:
    write(tmp_path, files)
    with pytest.raises(FlywheelError, match=detail) as raised:
        read_task(str(tmp_path / path), None)
    assert all(name in str(raised.value.hint) for name in FORMATS)


def test_a_folder_with_several_tasks_names_them(tmp_path: Path) -> None:
    write(tmp_path, {"1_a.py": TASK, "2_b.py": TASK})
    with pytest.raises(FlywheelError, match=r"has 2 tasks: 1_a\.py, 2_b\.py"):
        read_task(str(tmp_path), None)


def test_a_file_of_a_task_stays_within_its_folder(tmp_path: Path) -> None:
    escaping = PRODUCT["problem/task.yml"].replace("../utils.py", "../../../secret.py")
    write(tmp_path, {"secret.py": "x = 1"})
    task = write(tmp_path / "a" / "b", {**PRODUCT, "problem/task.yml": escaping}) / "problem"
    with pytest.raises(FlywheelError, match="outside of"):
        read_task(str(task), None)


@pytest.mark.slow
def test_a_function_may_write_into_outputs_that_flashinfer_allocates(
    bench: Bench, tmp_path: Path
) -> None:
    task = write(tmp_path, {"d.json": json.dumps(DEFINITION)}) / "d.json"
    run = "import torch\n\n\ndef run(A, B, scale, C):\n    torch.matmul(A, B * scale, out=C)\n"
    kernel = write(tmp_path, {"main.py": run}) / "main.py"
    row = check(bench, task, kernel, workload="M=5,scale=0.5")
    assert (row["status"], row["entry_point"]) == ("correct", "run"), row


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", ["Net", "Model"])
def test_a_kernel_of_kernelbook_gets_the_arguments_of_its_class(bench: Bench, name: str) -> None:
    module = (
        "import torch\n\n\nclass {name}(torch.nn.Module):\n"
        "    def __init__(self, width, bias=True):\n        super().__init__()\n"
        "        self.fc = torch.nn.Linear(width, width, bias=bias)\n\n"
        "    def forward(self, x):\n        return {forward}\n"
    )
    inputs = (
        "\n\ndef get_inputs():\n    return [torch.rand([4, 4])]\n\n\n"
        "def get_init_inputs():\n    return [[8], {'bias': False}]\n"
    ).replace("[4, 4]", "[4, 8]")
    task = adapt_task(module.format(name=name, forward="torch.relu(self.fc(x))") + inputs, name)
    assert task is not None
    case = Case(
        kernel_id="k",
        task_id="t",
        workload_id="w",
        entry_point=f"{name}New",
        code=module.format(name=f"{name}New", forward="self.fc(x).clamp(min=0)"),
        task_code=task,
    )
    [row] = judge(case, bench, Config(protocol="training", calls=3, draw_shapes=0))["evaluations"]
    assert row["status"] == "correct", row
    assert "parameters_renamed" not in row["flags"]


@pytest.mark.slow
def test_a_file_of_c_binds_a_function(bench: Bench, tmp_path: Path) -> None:
    task = write(tmp_path, {"task.py": TASK}) / "task.py"
    source = (
        "#include <torch/extension.h>\n"
        "torch::Tensor forward(torch::Tensor x, torch::Tensor y) { return x.clamp_min(0) + y; }\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }\n'
    )
    kernel = write(tmp_path, {"add.cpp": source}) / "add.cpp"
    row = check(bench, task, kernel, protocol="full", build_s=600.0)
    assert (row["status"], row["entry_point"]) == ("correct", "forward"), row


@pytest.mark.slow
def test_a_folder_with_the_name_of_a_task_of_the_lake_is_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "lake")
    code = store.ids.normalize(TASK)
    task_id = store.ids.task_id(code)
    label = {"suite": "own", "suite_revision": "1", "name": "add", "task_id": task_id}
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [{"task_id": task_id, "code": code, "source": "own"}],
                "task_labels": [{**label, "family": "add", "source": "own"}],
            },
            "a task",
        )
    write(tmp_path, {"add/notes.txt": "no task"})
    monkeypatch.chdir(tmp_path)
    assert read_task("add", url).code == code
    with pytest.raises(FlywheelError, match="no file in it is a task"):
        read_task("./add", url)
