"""A small lake for pipelines: tasks of both splits, and kernels of every standing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import store
from store import ids


def reference(name: str) -> str:
    """Return task text in KernelBench's format."""
    return (
        "import torch\nimport torch.nn as nn\n\nN = 1024\n\n\n"
        f"class Model(nn.Module):\n    def forward(self, x):\n        return torch.{name}(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(N)]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def code_of(task: str, name: str) -> str:
    """Return the text of a kernel that says whose it is."""
    return (
        "import torch\nimport torch.nn as nn\n\n\n"
        f"class ModelNew(nn.Module):\n    def forward(self, x):\n        # {task} {name}\n"
        f"        return torch.{task}(x)\n"
    )


@dataclass
class Rows:
    """Collects the rows of a small lake, table by table; `tables` is what a writer appends."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])

    def add(self, table: str, **row: Any) -> None:
        self.tables.setdefault(table, []).append(row)

    def device(self, name: str = "H200", kind: str = "cuda") -> str:
        self.add("devices", device_id=f"device-{name}", name=name, kind=kind, model=name)
        return name

    def policy(self, name: str, **more: Any) -> None:
        self.add("policies", policy_id=name, name=name, kind="model", **more)

    def task(
        self,
        name: str,
        *,
        family: str,
        split: str | None,
        degenerate: bool = False,
        suite: str = "s",
    ) -> str:
        code = reference(name)
        task_id = ids.task_id(code)
        self.add("tasks", task_id=task_id, code=code, source="tests", license="MIT")
        self.add(
            "task_labels",
            suite=suite,
            suite_revision="v1",
            name=name,
            task_id=task_id,
            level=1,
            title=f"Task {name}",
            family=family,
            degenerate=degenerate,
            source="tests",
        )
        if split is not None:
            self.add("splits", suite=suite, family=family, split=split, rule="tests")
        self.add(
            "workloads",
            workload_id=ids.workload_id(task_id),
            task_id=task_id,
            name="default",
            axes="{}",
            generator="get_inputs",
        )
        return task_id

    def kernel(
        self,
        task_id: str,
        code: str,
        *,
        policy: str = "writer",
        bands: Sequence[int] | None = None,
        license: str | None = "MIT",
        other_files: Any = None,
        feature: bool = True,
    ) -> str:
        files = {"kernel.py": code} | {one["path"]: one["code"] for one in other_files or ()}
        kernel_id = ids.kernel_id(files, "kernel.py")
        self.add(
            "kernels",
            kernel_id=kernel_id,
            code=code,
            path="kernel.py",
            entry_point="ModelNew",
            source="tests",
            license=license,
            other_files=other_files,
        )
        self.add(
            "generations",
            generation_id=ids.content_id("generation", policy, task_id, kernel_id),
            task_id=task_id,
            policy_id=policy,
            kernel_id=kernel_id,
        )
        if feature:
            first = int(kernel_id[:12], 16)
            self.add(
                "kernel_features",
                kernel_id=kernel_id,
                extractor_version=1,
                parsed=True,
                language="pytorch",
                has_device_code=False,
                global_functions=0,
                triton_kernels=0,
                uses_cuda_graphs=False,
                uses_torch_compile=False,
                uses_torch_jit=False,
                sets_cudnn_flags=False,
                uses_streams=False,
                techniques=[],
                code_bytes=len(code),
                code_lines=code.count("\n"),
                minhash_bands=list(bands or range(first, first + 16)),
            )
        return kernel_id

    def judged(
        self,
        task_id: str,
        kernel_id: str,
        status: str = "correct",
        *,
        device: str = "H200",
        workload_id: str | None = None,
        version: int = 1,
        evaluator: str = "correctness",
        reason: str | None = None,
    ) -> str:
        evaluation_id = ids.uuid7()
        self.add(
            "evaluations",
            evaluation_id=evaluation_id,
            kernel_id=kernel_id,
            task_id=task_id,
            workload_id=workload_id or ids.workload_id(task_id),
            device_id=f"device-{device}",
            evaluator=evaluator,
            evaluator_version=version,
            status=status,
            reason=reason or (None if status == "correct" else "unspecified"),
        )
        return evaluation_id

    def measured(
        self,
        task_id: str,
        kernel_id: str,
        speedup: float,
        *,
        device: str = "H200",
        workload_id: str | None = None,
        noisy: bool = False,
        baseline: str = "eager",
    ) -> None:
        """Add a correct verdict and a session of 7 blocks with exactly this speedup."""
        evaluation_id = self.judged(task_id, kernel_id, device=device, workload_id=workload_id)
        session_id = ids.uuid7()
        for arm, ms in (("kernel", 1.0), (baseline, speedup)):
            self.add(
                "timings",
                timing_id=ids.uuid7(),
                evaluation_id=evaluation_id,
                session_id=session_id,
                arm=arm,
                kernel_id=kernel_id,
                task_id=task_id,
                workload_id=workload_id or ids.workload_id(task_id),
                device_id=f"device-{device}",
                samples_ms=[ms] * 7,
                blocks=list(range(7)),
                inner_loops=1,
                cache="cold",
                noisy=noisy,
            )

    def quarantine(self, kernel_id: str) -> None:
        finding = ids.content_id("finding", kernel_id)
        self.add(
            "findings",
            finding_id=finding,
            kernel_id=kernel_id,
            detector="tests",
            detector_version=1,
            **{"class": "result_caching"},
        )
        self.add(
            "standings",
            standing_id=ids.uuid7(),
            finding_id=finding,
            decision="confirmed",
            author="tests",
            why="on purpose",
        )

    def claim(
        self,
        task_id: str,
        kernel_id: str | None,
        speedup: float,
        *,
        gpu: str = "A100",
        baseline: str = "eager",
        source: str = "paper",
    ) -> None:
        self.add(
            "claims",
            claim_id=ids.content_id(task_id, kernel_id, gpu, baseline, source),
            task_id=task_id,
            kernel_id=kernel_id,
            gpu=gpu,
            baseline=baseline,
            metric="speedup",
            speedup=speedup,
            source=source,
            source_revision="v1",
            license="MIT",
        )


@pytest.fixture
def rows() -> Rows:
    """Return an empty collection with one device and two policies."""
    made = Rows()
    made.device()
    made.policy("writer", stage="base", round=0)
    made.policy("student", stage="self-supervised", round=1)
    return made


@pytest.fixture
def lake_of(lake_url: str, writer: store.Writer) -> Iterator[Callable[[Rows], store.Lake]]:
    """Return a function that stores collected rows and opens the lake."""
    opened: list[store.Lake] = []

    def build(made: Rows) -> store.Lake:
        writer.append(made.tables, "tests")
        opened.append(store.open(lake_url))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


@dataclass(frozen=True)
class Known:
    """Ids of the small lake by role."""

    relu: str
    sigmoid: str
    tanh: str
    lonely: str
    held_out: str
    constant: str
    kernels: dict[str, str]


@pytest.fixture
def small(rows: Rows) -> tuple[Rows, Known]:
    """Fill in tasks of both splits with kernels of every standing.

    relu: five good kernels in four buckets, one quarantined, one wrong, one slower than eager.
    sigmoid: three good kernels. tanh: one good kernel. lonely: nothing measured.
    held_out: of the test split, three good kernels. constant: degenerate.
    """
    relu = rows.task("relu", family="pointwise", split="train")
    sigmoid = rows.task("sigmoid", family="pointwise", split="train")
    tanh = rows.task("tanh", family="curve", split=None)
    lonely = rows.task("exp", family="alone", split=None)
    held_out = rows.task("cumsum", family="scan", split="test")
    constant = rows.task("zeros_like", family="constant", split="train", degenerate=True)
    known: dict[str, str] = {}
    speeds = {
        relu: {"a": 1.42, "b": 1.46, "c": 2.8, "d": 4.1, "e": 0.62},
        sigmoid: {"a": 1.1, "b": 1.6, "c": 3.0},
        tanh: {"a": 2.25},
        held_out: {"a": 1.3, "b": 2.2, "c": 5.0},
        constant: {"a": 90.0, "b": 80.0},
    }
    names = {
        relu: "relu",
        sigmoid: "sigmoid",
        tanh: "tanh",
        held_out: "cumsum",
        constant: "zeros_like",
    }
    for task_id, kernels in speeds.items():
        for name, speedup in kernels.items():
            kernel = rows.kernel(task_id, code_of(names[task_id], name))
            rows.measured(task_id, kernel, speedup)
            known[f"{names[task_id]}.{name}"] = kernel
    known["cheat"] = rows.kernel(relu, code_of("relu", "cheat"))
    rows.measured(relu, known["cheat"], 50.0)
    rows.quarantine(known["cheat"])
    known["wrong"] = rows.kernel(relu, code_of("relu", "wrong"))
    rows.measured(relu, known["wrong"], 40.0)
    rows.judged(relu, known["wrong"], "incorrect", reason="incorrect_numerical")
    return rows, Known(relu, sigmoid, tanh, lonely, held_out, constant, known)
