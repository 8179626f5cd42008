"""Rows of a small lake for pipelines: tasks of both splits, kernels of every standing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import builders
from builders import Row

from store import ids

REFERENCE = """import torch
import torch.nn as nn

N = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.{name}(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        # {task} {name}
        return torch.{task}(x)
"""


def code_of(task: str, name: str) -> str:
    """Return the text of a kernel that says whose it is."""
    return KERNEL.format(task=task, name=name)


@dataclass
class Rows:
    """Collects rows by table; its functions take and return ids. A writer appends `tables`."""

    tables: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    known: dict[str, Row] = field(default_factory=dict[str, Row])
    minute: int = 0

    def add(self, table: str, row: Row) -> Row:
        """Keep one row."""
        self.tables.setdefault(table, []).append(row)
        return row

    def device(self, name: str = "H200", kind: str = "cuda") -> str:
        """Add a device; it is known by its name."""
        self.known[name] = self.add("devices", builders.device(name, kind=kind))
        return name

    def policy(self, name: str, **more: Any) -> str:
        """Add a policy; it is known by its name."""
        self.known[name] = self.add("policies", builders.policy(name, **more))
        return name

    def task(self, name: str, *, family: str, split: str | None, degenerate: bool = False) -> str:
        """Add a task with its label, split and default workload."""
        code = REFERENCE.format(name=name)
        task_id = ids.task_id(code)
        task = builders.task(name, task_id=task_id, code=code, license="MIT")
        self.known[task_id] = self.add("tasks", task)
        self.add(
            "task_labels",
            builders.label(task, name, title=f"Task {name}", family=family, degenerate=degenerate),
        )
        if split is not None:
            self.add("splits", builders.split(family, split))
        self.workload(task_id)
        return task_id

    def workload(self, task_id: str, name: str = "default", axes: str = "{}") -> str:
        """Add a workload."""
        made = self.add("workloads", builders.workload(self.known[task_id], name, axes))
        self.known[made["workload_id"]] = made
        return made["workload_id"]

    def kernel(
        self,
        task_id: str,
        code: str,
        *,
        policy: str = "writer",
        bands: Sequence[int] | None = None,
        **more: Any,
    ) -> str:
        """Add a kernel that an audit has read, its attempt and its features.

        Without `bands` it resembles no other.
        """
        kernel = self.add("kernels", builders.kernel(code=code, **({"license": "MIT"} | more)))
        kernel_id = kernel["kernel_id"]
        self.known[kernel_id] = kernel
        if "scans" not in self.tables:
            self.add("runs", builders.audit())
        self.add("scans", builders.scan(kernel))
        self.add_attempt(kernel_id, task_id, policy)
        first = int(kernel_id[:12], 16)
        signature = list(bands if bands is not None else range(first, first + 16))
        self.add("kernel_features", builders.features(kernel, minhash_bands=signature))
        return kernel_id

    def add_attempt(self, kernel_id: str, task_id: str, policy: str = "writer") -> None:
        """Add an attempt of a policy at a task that gave this kernel."""
        known = self.known
        self.add(
            "generations", builders.generation(known[policy], known[task_id], known[kernel_id])
        )

    def add_verdict(
        self,
        task_id: str,
        kernel_id: str,
        status: str = "correct",
        *,
        device: str = "H200",
        workload_id: str | None = None,
        **more: Any,
    ) -> Row:
        """Add a verdict."""
        self.minute += 1
        known = self.known
        sizes = known[workload_id or ids.workload_id(task_id)]
        row = builders.evaluation(
            known[kernel_id], known[task_id], sizes, known[device], status, minute=self.minute,
            **more,
        )  # fmt: skip
        return self.add("evaluations", row)

    def add_session(self, task_id: str, kernel_id: str, speedup: float, **more: Any) -> None:
        """Add a correct verdict and a session of 7 blocks with exactly this speedup over eager."""
        evaluation = self.add_verdict(task_id, kernel_id, **{"seeds": [*range(30)]} | more)
        for row in builders.session(evaluation, [1.0] * 7, eager=[speedup] * 7):
            self.add("timings", row)

    def quarantine(self, kernel_id: str) -> None:
        """Add a finding on a kernel and its confirmation."""
        finding = self.add("findings", builders.finding(self.known[kernel_id]))
        self.add("standings", builders.standing(finding))

    def claim(
        self, task_id: str, kernel_id: str | None, speedup: float, source: str = "paper"
    ) -> None:
        """Add a published speedup over eager on an A100."""
        kernel = None if kernel_id is None else self.known[kernel_id]
        self.add("claims", builders.claim(self.known[task_id], kernel, speedup, source=source))


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


def add_small_rows(rows: Rows) -> Known:
    """Fill in tasks of both splits with kernels of every standing.

    relu: five good kernels in four buckets, one quarantined, one wrong. sigmoid: three good
    kernels. tanh: one. exp ("lonely"): none. cumsum ("held_out"): of the test split, three good
    ones. zeros_like ("constant"): degenerate, two.
    """
    speeds = {
        "relu": {"a": 1.42, "b": 1.46, "c": 2.8, "d": 4.1, "e": 0.62},
        "sigmoid": {"a": 1.1, "b": 1.6, "c": 3.0},
        "tanh": {"a": 2.25},
        "cumsum": {"a": 1.3, "b": 2.2, "c": 5.0},
        "zeros_like": {"a": 90.0, "b": 80.0},
    }
    tasks = {
        "relu": rows.task("relu", family="pointwise", split="train"),
        "sigmoid": rows.task("sigmoid", family="pointwise", split="train"),
        "tanh": rows.task("tanh", family="curve", split=None),
        "exp": rows.task("exp", family="alone", split=None),
        "cumsum": rows.task("cumsum", family="scan", split="test"),
        "zeros_like": rows.task("zeros_like", family="flat", split="train", degenerate=True),
    }
    known: dict[str, str] = {}
    for task, kernels in speeds.items():
        for name, speedup in kernels.items():
            known[f"{task}.{name}"] = rows.kernel(tasks[task], code_of(task, name))
            rows.add_session(tasks[task], known[f"{task}.{name}"], speedup)
    for name, speedup in (("cheat", 50.0), ("wrong", 40.0)):
        known[name] = rows.kernel(tasks["relu"], code_of("relu", name))
        rows.add_session(tasks["relu"], known[name], speedup)
    rows.quarantine(known["cheat"])
    rows.add_verdict(tasks["relu"], known["wrong"], "incorrect", reason="incorrect_numerical")
    return Known(*tasks.values(), known)
