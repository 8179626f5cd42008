"""Repositories for Hugging Face's `kernels`: who leaves, what they hold, and how they run."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import keyword
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import MethodType
from typing import Any

import builders
import pytest
import torch
from new_lakes import make_once
from winner_lakes import WON, make_lake

import store
from evaluators.device.placement import read_processor_model
from evaluators.winners.loading import import_package
from store.errors import ExportRefused, FlywheelError, UnknownName
from store.exporters import hub_kernels
from store.exporters.hub_kernels import Config
from store.exporters.writing.run import export
from store.receipts.check import verify
from store.winners.package import write_package
from store.winners.selection import TaskWinners

BUILD = Path("build", "torch-universal")


@pytest.fixture(scope="module")
def written() -> Path:
    """Return every repository of a lake in which kernels have won here and on an H200."""

    def make(folder: Path) -> None:
        with store.open(make_lake(folder / "lake")) as lake:
            tasks = f"task IN {(*WON, 'single_gate')}"
            export(lake, hub_kernels, folder / "out", Config(where=tasks))

    return make_once("winners", make) / "out"


class Exported:
    """A written package, imported into this process."""

    def __init__(self, folder: Path, function: str) -> None:
        build = folder / BUILD
        module = import_package(build)
        self.layers = module.layers
        self.winner = getattr(module, function)
        self.task: Any = {}
        exec((build / "reference.py").read_text(), self.task)
        self.inputs = self.task["get_inputs"]()
        self.module = self.make_module()
        self.state = {name: one.detach() for name, one in self.module.named_parameters()}

    def make_module(self) -> torch.nn.Module:
        """Return a module of the task's own class."""
        return self.task["Model"](*self.task.get("get_init_inputs", list)())

    def count(self) -> int:
        """Return for how many kinds of calls a kernel is used."""
        return len([one for one in self.winner._tables.kernels.values() if one])

    def check(self, *inputs: torch.Tensor, **changed: torch.Tensor) -> torch.Tensor:
        """Call the winner, whose answer is that of the task."""
        given, state = inputs or tuple(self.inputs), self.state | changed
        before = torch.get_rng_state()
        answer = self.winner(*given, **state)
        assert torch.equal(before, torch.get_rng_state())
        want = torch.func.functional_call(self.module, state, given)
        torch.testing.assert_close(answer, want, rtol=1e-2, atol=1e-2)
        return answer


def test_a_winner_and_no_other_kernel_leaves(written: Path) -> None:
    names = {one.name for one in written.iterdir() if one.is_dir()}
    assert {"rms-norm-residual", "layer-norm"} <= names
    assert "single-gate" not in names  # a trivial task
    facts = json.loads((written / "rms-norm-residual" / BUILD / "winners.json").read_text())
    # On each device the kernel with the highest lower bound, and no other.
    assert [one["device"] for one in facts["winners"]][1:] == ["H200"]
    assert sorted(facts["kernels"]) == sorted(one["kernel_id"] for one in facts["winners"])
    assert all(one["speedup_low"] > 1 for one in facts["winners"])
    code = (written / "rms-norm-residual" / BUILD / "reference.py").read_text()
    assert store.ids.task_id(code) == facts["task_id"]
    card = (written / "rms-norm-residual" / "README.md").read_text()
    assert "license: apache-2.0" in card
    for kernel_id in facts["kernels"]:
        assert f"(receipts/{kernel_id}.json)" in card
        receipt = (written / "rms-norm-residual" / "receipts" / f"{kernel_id}.json").read_bytes()
        assert verify(receipt).receipt["kernel"]["kernel_id"] == kernel_id


@pytest.mark.parametrize(
    "task",
    [
        "rms_norm_residual",
        # Its C++ is compiled when it is imported.
        pytest.param("layer_norm", marks=pytest.mark.slow),
        pytest.param("diag_matmul", marks=pytest.mark.slow),
    ],
)
def test_an_exported_kernel_answers_like_its_task(written: Path, task: str) -> None:
    exported = Exported(written / task.replace("_", "-"), task)
    exported.check()
    exported.check()
    assert exported.count() == 1


@pytest.mark.slow
def test_a_written_package_needs_nothing_of_ours(written: Path) -> None:
    program = (
        "import importlib.util, sys\n"
        "file = sys.argv[1] + '/__init__.py'\n"
        "spec = importlib.util.spec_from_file_location('exported', file)\n"
        "sys.modules['exported'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(callable(module.diag_matmul), {'store', 'evaluators'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-P", "-c", program, str(written / "diag-matmul" / BUILD)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=written)
    assert done.stdout == "True set()\n"


def test_other_calls_run_the_task(written: Path) -> None:
    exported = Exported(written / "rms-norm-residual", "rms_norm_residual")
    x, residual = exported.inputs
    exported.check()
    assert exported.count() == 1
    with pytest.warns(RuntimeWarning, match="no call like this one was judged on"):
        exported.check(x[:7], residual[:7])
    exported.check(x.t(), residual.t())
    exported.check(torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x), residual)
    with torch.autocast("cpu", torch.bfloat16):
        exported.check()
    assert exported.check(weight=exported.state["weight"].clone().requires_grad_()).requires_grad
    with pytest.raises(TypeError, match="needs the task's parameters by name: weight=…"):
        exported.winner(x, residual)
    assert exported.count() == 1


@pytest.mark.parametrize(
    "fast",
    [pytest.param(True, id="usual"), pytest.param(False, id="by key", marks=pytest.mark.slow)],
)
def test_a_kernel_runs_in_no_other_call(written: Path, fast: bool) -> None:
    """Of a thread's calls, only those like the one that found the kernel run it."""
    exported = Exported(written / "rms-norm-residual", "rms_norm_residual")
    exported.check()
    tables, x, residual = exported.winner._tables, *exported.inputs
    weight = exported.state["weight"]
    runs: list[Any] = []
    [(key, (_, slots, kernel_id))] = tables.kernels.items()
    kernel = (lambda *inputs: runs.append(inputs), slots, kernel_id)
    tables.kernels[key] = kernel
    assert len(tables.usual) == 1  # torch has the checks
    tables.usual = {None: (*tables.usual[None][:2], kernel)} if fast else {}
    unaligned = torch.empty(x.numel() + 1)[1:].view_as(x).copy_(x)
    param = torch.nn.Parameter(weight)
    negated: torch.Tensor = getattr(torch, "_neg_view")(x)  # noqa: B009 (a view of x as -x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for kind in (
            (x[:7], residual[:7], weight),
            (x.repeat(1, 1, 1), residual, weight),
            (x.t().contiguous().t(), residual, weight),
            (x, residual[:, :1].expand_as(x), weight),
            (x, residual, weight[:1].expand_as(weight)),
            (x.double(), residual.double(), weight.double()),
            (x, residual.half(), weight),
            (unaligned, residual, weight),
            (negated, residual, weight),
            (x, 1.0, weight),
            (x.as_subclass(type("Other", (torch.Tensor,), {})), residual, weight),
            (x.to("meta"), residual.to("meta"), weight.to("meta")),
        ):
            exported.winner(*kind[:2], weight=kind[2])
            assert not runs, kind
        with torch.autocast("cpu"):
            exported.winner(x, residual, weight=weight)
        with torch.enable_grad():
            exported.winner(x, residual, weight=param)
        with pytest.raises(TypeError):
            exported.winner(x, weight=weight)
        weight.data = weight.data.double()
        exported.winner(x, residual, weight=weight)
        assert not runs
        weight.data = weight.data.float()
        exported.winner(x, residual, weight=weight)
        exported.winner(x, residual=residual, weight=weight)
        assert len(runs) == 2
        exported.winner(x, residual, weight=param)
        assert len(runs) == 3


def test_a_layer_reads_the_module_that_it_is_put_in(written: Path) -> None:
    exported = Exported(written / "rms-norm-residual", "rms_norm_residual")
    layer = exported.layers.RmsNormResidual
    assert layer.__init__ is torch.nn.Module.__init__
    mine: Any = exported.make_module()
    mine.forward = MethodType(layer.forward, mine)

    def check(count: int) -> None:
        want = exported.task["Model"].forward(mine, *exported.inputs)
        torch.testing.assert_close(mine(*exported.inputs), want, rtol=1e-4, atol=1e-4)
        assert exported.count() == count

    with torch.no_grad():
        check(1)
        mine.weight.mul_(3)
        check(1)
        mine.weight = torch.nn.Parameter(torch.randn_like(mine.weight))
        check(1)
        mine.eps = 0.5
        with pytest.warns(RuntimeWarning, match="not set up like the task's"):
            check(1)
    mine.eps = 1e-6
    mine(*exported.inputs).sum().backward()
    assert mine.weight.grad is not None


SPOILED = {
    "raise OSError('no compiler')\n": "OSError: no compiler",
    "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, a, b):\n"
    "        return a.unsqueeze(1) * b + 1\n": "its first answer differs from the task's own",
    "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.gain = torch.nn.Parameter(torch.ones(()))\n"
    "    def forward(self, a, b):\n        return a.unsqueeze(1) * b\n": "its parameters are not",
}


def exchange(folder: Path, code: str) -> str:
    """Make another kernel the winner of the first workload; return its id."""
    file = folder / BUILD / "winners.json"
    facts = json.loads(file.read_text())
    row = builders.kernel(code=code)
    for won in facts["winners"]:
        if won["workload"] == 0:
            won["kernel_id"] = row["kernel_id"]
    about = {"path": "kernel.py", "entry_point": "ModelNew", "other_paths": []}
    facts["kernels"][row["kernel_id"]] = about
    file.write_text(json.dumps(facts))
    (folder / BUILD / "kernels" / row["kernel_id"]).mkdir()
    (folder / BUILD / "kernels" / row["kernel_id"] / "kernel.py").write_text(code)
    return row["kernel_id"]


KEEPS = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, cols, eps):
        super().__init__()
        self.eps, self.kept = eps, {}
        self.weight = torch.nn.Parameter(torch.randn(cols))

    def forward(self, x, residual):
        weight = self.kept.setdefault("weight", self.weight * 1)
        return torch.nn.functional.rms_norm(x + residual, x.shape[-1:], weight, self.eps)
"""


@pytest.mark.slow
def test_a_kernel_that_keeps_what_it_makes_of_weights_is_not_used(
    tmp_path: Path, written: Path
) -> None:
    folder = Path(shutil.copytree(written / "rms-norm-residual", tmp_path / "copy"))
    exchange(folder, KEEPS)
    exported = Exported(folder, "rms_norm_residual")
    with pytest.warns(RuntimeWarning, match="it keeps tensors beside its parameters"):
        exported.check()
    exported.check(weight=exported.state["weight"] * 2)
    assert exported.count() == 0


@pytest.mark.parametrize("code", [*SPOILED, None], ids=["import", "answer", "state", "hash"])
def test_a_kernel_that_cannot_be_used_is_named_once(
    tmp_path: Path, written: Path, code: str | None
) -> None:
    """The kernel of another lake raises, answers wrongly, or has been exchanged in the folder."""
    folder = Path(shutil.copytree(written / "diag-matmul", tmp_path / "diag-matmul"))
    if code is None:
        facts = json.loads((folder / BUILD / "winners.json").read_text())
        [kernel_id] = [one["kernel_id"] for one in facts["winners"] if one["workload"] == 0]
        [file] = (folder / BUILD / "kernels" / kernel_id / "diag_matmul").iterdir()
        file.write_text("raise SystemExit('it ran')\n")
        told = "its code is not the code that was judged"
    else:
        kernel_id, told = exchange(folder, code), SPOILED[code]
    exported = Exported(folder, "diag_matmul")
    with pytest.warns(RuntimeWarning, match=f"{kernel_id[:12]} is not used: .*{told}"):
        exported.check()
    exported.check()
    assert exported.count() == 0


SETS_FLAGS = """import torch
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.set_num_threads(torch.get_num_threads() + 1)
torch.use_deterministic_algorithms(True)
torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.fp32_precision = "ieee"
torch.backends.cudnn.conv.fp32_precision = "ieee"
torch.backends.cudnn.benchmark = True
torch.manual_seed(0)

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        torch.rand(1)
        return a.unsqueeze(1) * b
"""


def test_what_a_kernel_sets_for_the_whole_process_is_undone(tmp_path: Path, written: Path) -> None:
    folder = Path(shutil.copytree(written / "diag-matmul", tmp_path / "diag-matmul"))
    exchange(folder, SETS_FLAGS)
    exported = Exported(folder, "diag_matmul")
    before = [read() for read, _ in exported.winner._choose.__globals__["_FLAGS"]]
    exported.check()
    assert exported.count() == 1
    assert [read() for read, _ in exported.winner._choose.__globals__["_FLAGS"]] == before


def test_a_winner_is_copied_and_pickled_like_a_function(written: Path) -> None:
    winner = Exported(written / "diag-matmul", "diag_matmul").winner
    assert copy.deepcopy(winner) is winner
    assert pickle.loads(pickle.dumps(winner)) is winner


def test_without_a_compiler_the_task_runs(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = json.loads((written / "layer-norm" / BUILD / "winners.json").read_text())
    for kernel_id in facts["kernels"]:
        monkeypatch.delitem(sys.modules, f"_flywheel_kernel_{kernel_id}", raising=False)
    monkeypatch.setenv("PATH", "")
    exported = Exported(written / "layer-norm", "layer_norm")
    with pytest.warns(RuntimeWarning, match="is not used: FileNotFoundError"):
        exported.check()
    exported.check()
    assert exported.count() == 0


def test_a_reference_that_was_exchanged_is_not_run(tmp_path: Path, written: Path) -> None:
    folder = Path(shutil.copytree(written / "diag-matmul", tmp_path / "diag-matmul"))
    (folder / BUILD / "reference.py").write_text("raise SystemExit('it ran')\n")
    with pytest.raises(ImportError, match="is not the code of task diag_matmul"):
        Exported(folder, "diag_matmul")


def test_what_may_not_leave_stays(tmp_path: Path) -> None:
    url = make_lake(tmp_path / "lake", {"diag_matmul": "broadcast"}, speedup=1.0)
    task, odd = builders.task(), builders.task("odd")
    device = builders.device("here")
    kernel = builders.kernel(license="MIT")
    unlicensed = builders.kernel("unlicensed")
    suspect = builders.kernel("suspect", license="MIT")
    other = builders.kernel("other", license="MIT")
    hostile = builders.kernel("hostile", license="MIT", path="../../escape.py")
    inside = {"path": "kernel/part.h", "code": "// a file in a file"}
    nested = builders.kernel("nested", license="MIT", path="kernel", other_files=[inside])
    licensed = {"license": "MIT"}
    sizes, odd_sizes = builders.workload(task), builders.workload(odd)
    judged = [
        builders.evaluation(one, task, sizes, device, equivalent=one is not other)
        for one in (kernel, unlicensed, suspect, other, hostile, nested)
    ]
    lost = builders.evaluation(kernel, odd, odd_sizes, device, equivalent=True)
    kernels = [kernel, unlicensed, suspect, other, hostile, nested]
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [task | licensed, odd],
                "task_labels": [builders.label(task), builders.label(odd, "level1/2")],
                "workloads": [sizes, odd_sizes],
                "devices": [device],
                "kernels": kernels,
                "policies": [builders.policy()],
                "generations": [builders.generation(builders.policy(), task, k) for k in kernels]
                + [builders.generation(builders.policy(), odd, kernel, minute=1)],
                "evaluations": [*judged, lost],
                "timings": [
                    row
                    for fast, one in enumerate([*judged, lost])
                    for row in builders.session(one, [1.0], eager=[2.0 + fast])
                ],
                "findings": [builders.finding(suspect, confidence=0.9)],
            },
            "kernels of all kinds",
        )
    with store.open(url) as lake:
        export(lake, hub_kernels, tmp_path / "out", Config(device="here"))
        with pytest.raises(ExportRefused, match="no kernel may leave") as slow:
            export(
                lake,
                hub_kernels,
                tmp_path / "slow",
                Config(where="task = 'diag_matmul' AND device <> 'H200'"),
            )
        with pytest.raises(UnknownName):
            export(lake, hub_kernels, tmp_path / "slow", Config(device="nowhere"))
        with pytest.raises(FlywheelError):
            export(lake, hub_kernels, tmp_path / "slow", Config(where="true) OR (true;"))
    assert "not faster than eager" in str(slow.value)
    assert not (tmp_path / "slow").exists()
    [folder] = [one for one in (tmp_path / "out").iterdir() if one.is_dir()]
    facts = json.loads((folder / BUILD / "winners.json").read_text())
    assert list(facts["kernels"]) == [kernel["kernel_id"]]
    with (
        store.open(url, include=("nonequivalent",)) as lake,
        pytest.raises(ExportRefused, match="another function"),
    ):
        export(lake, hub_kernels, tmp_path / "all", Config())


ODD = {
    "overwrites": ("x.add_(1)\n        return x", None, "[torch.randn(4, 5)]", True),
    "counts": ("self.n += 1\n        return x * self.n", None, "[torch.randn(4)]", True),
    "scratch": ("return x + 1", "return x.add_(1).clone()", "[torch.randn(4)]", False),
    "two answers": ("return x + 1, x * 2", None, "[torch.randn(4, 5).t()]", True),
    "empty": ("return x + 1", None, "[torch.randn(0, 5)]", True),
    "integers": ("return x * 2", None, "[torch.arange(12)]", True),
    "no input": ("return torch.ones(3) * self.n", None, "[]", True),
    "values": ("return x * k", None, "[torch.randn(4), 3, None]", True),
    "a list": ("return x[0]", None, "[[torch.randn(4)]]", False),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_tasks_answer_as_without_a_winner(tmp_path: Path, name: str) -> None:
    forward, of_kernel, inputs, runs = ODD[name]
    text = (
        "import torch\nclass {}(torch.nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.register_buffer('n', torch.zeros(()))\n"
        "    def forward(self, x=None, k=1, mask=None):\n        {}\n"
    )
    code = text.format("Model", forward) + f"def get_inputs():\n    return {inputs}\n"
    kernel = builders.kernel(code=text.format("ModelNew", of_kernel or forward))
    row: dict[str, Any] = dict.fromkeys(("clock", "speedup", "speedup_high", "workload"))
    row |= {"kernel_id": kernel["kernel_id"], "workload_id": "w", "axes": "{}", "device": "here"}
    winners = TaskWinners(
        task_id=store.ids.task_id(code),
        task="odd",
        code=code,
        license=None,
        rows=[row | {"kind": "cpu", "speedup_low": 2.0}],
        kernels={kernel["kernel_id"]: {"other_files": None} | kernel},
        models={"here": [read_processor_model()]},
    )
    write_package(winners, tmp_path / BUILD)
    exported = Exported(tmp_path, "odd")
    mine, own = exported.make_module(), exported.make_module()
    mine.forward = MethodType(exported.layers.Odd.forward, mine)
    given, kept = copy.deepcopy(exported.inputs), copy.deepcopy(exported.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for _ in range(3):
            torch.testing.assert_close(mine(*given), own(*kept))
            torch.testing.assert_close(given, kept)
            torch.testing.assert_close(mine.state_dict(), own.state_dict())
    assert exported.count() == runs


def test_the_name_of_a_task_is_no_code(tmp_path: Path) -> None:
    name = '""";raise SystemExit("it ran");"""'
    code = (Path(store.__file__).parent / "starter/tasks/diag_matmul.py").read_text()
    task_id = store.ids.task_id(code)
    write_package(
        TaskWinners(
            task_id=task_id, task=name, code=code, license=None, rows=[], kernels={}, models={}
        ),
        tmp_path / "build",
    )
    for file in ("__init__.py", "layers.py"):
        text = (tmp_path / "build" / file).read_text()
        assert not [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Raise)]


def test_the_names_are_those_that_kernels_allows() -> None:
    for task in (*WON, "level1/9", "1_Square_matrix", "X", "…", "class", "guard", "none"):
        for name in (hub_kernels.name_function(task), hub_kernels.name_layer(task)):
            assert name.isidentifier()
            assert not keyword.iskeyword(name)
        name = hub_kernels.name_repository(task)
        assert name.replace("-", "").isalnum()
        assert name[0].isalpha()
        assert len(name) > 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_winners_answer_like_their_tasks_on_a_gpu(written: Path) -> None:
    """On an H200, for which the starter suite has verdicts, kernels of Triton and CUDA run."""
    used = 0
    for folder in sorted(one for one in written.iterdir() if one.is_dir()):
        winner = Exported(folder, folder.name.replace("-", "_")).winner
        for setting in [one for one in winner._settings.values() if one._on_cuda]:
            inputs = [one.cuda() for one in setting._get_inputs()]
            state = {k: v.cuda() for k, v in (setting.parameters | setting.buffers).items()}
            want = torch.func.functional_call(setting.reference, state, tuple(inputs))
            for _ in range(2):
                torch.testing.assert_close(winner(*inputs, **state), want, rtol=1e-2, atol=1e-2)
        used += len([one for one in winner._tables.kernels.values() if one])
    assert used or torch.cuda.get_device_name() != "NVIDIA H200"


@pytest.mark.skipif(importlib.util.find_spec("kernels") is None, reason="kernels is not installed")
def test_the_real_loader_opens_a_repository_and_kernelizes_a_block(written: Path) -> None:
    program = """
import sys, torch
from pathlib import Path
from kernels import LocalLayerRepository, Mode, get_local_kernel, kernelize
from kernels import replace_kernel_forward_from_hub, use_kernel_mapping

repository = Path(sys.argv[1])
kernel = get_local_kernel(repository)
task = sys.modules[type(kernel.rms_norm_residual._first.reference).__module__]
replace_kernel_forward_from_hub(task.Model, "Norm")
block = torch.nn.ModuleList([task.Model(*task.get_init_inputs()) for _ in range(2)])
inputs = task.get_inputs()
mapping = {"Norm": {"cpu": LocalLayerRepository(repository, layer_name="RmsNormResidual")}}
with torch.no_grad(), use_kernel_mapping(mapping):
    want = [one(*inputs) for one in block]
    kernelize(block, mode=Mode.INFERENCE, device="cpu")
    for _ in range(2):
        for one, answer in zip(block, want):
            torch.testing.assert_close(one(*inputs), answer, rtol=1e-4, atol=1e-4)
print(len([one for one in kernel.rms_norm_residual._tables.kernels.values() if one]))
"""
    command = [sys.executable, "-c", program, str(written / "rms-norm-residual")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
