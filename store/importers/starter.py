"""The starter suite: built-in tasks and labeled kernels, and rows measured on H200s.

One bundle has the suite of store/starter/suite.yaml, another one the rows measured on a GPU machine
(store/starter/measured). Kernels that cheat come with a confirmed finding, so they are quarantined;
kernels that are merely wrong are not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

import store
from store import ids
from store.errors import ImportFailed
from store.importers.reading import pieces, sources
from store.writing.bundle import Bundle

NAME = "starter"
FOLDER = Path(__file__).parent.parent / "starter"
MEASURED = FOLDER / "measured"
TAKES_PATH = False
DETECTOR = "starter-label"
_DETECTOR_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    measured: bool = True
    """Also import the rows measured on a GPU machine."""


class StarterKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of the suite with its label."""

    name: str
    """File name without .py."""
    code: str
    about: str
    """What the kernel does, by the first line of its docstring."""
    device: str
    """cpu, cuda or any."""
    label: str = "honest"
    """honest, short_circuit, wrong, broken or cheat."""
    finding: str | None = msgspec.field(name="class", default=None)
    """Class of a cheat or short-circuit."""
    expect: tuple[str, ...] = ("correct",)
    """Verdicts that a sound evaluator may give: status, or status/reason."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the suite with its kernels."""

    name: str
    code: str
    title: str
    family: str
    level: int
    degenerate: bool = False
    workloads: dict[str, dict[str, int]]
    """Device kind to names of the task text and the values that replace them."""
    kernels: tuple[StarterKernel, ...]


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """The suite as suite.yaml describes it."""

    name: str = msgspec.field(name="suite")
    revision: str
    license: str
    rule: str
    """How the splits were decided."""
    families: dict[str, str]
    """Family to train or test."""
    tasks: tuple[Task, ...]


def read_suite(folder: Path = FOLDER) -> Suite:
    """Read suite.yaml and the files that it names. Raises ImportFailed if one is missing."""
    stated: dict[str, Any] = yaml.safe_load(sources.read_text(folder / "suite.yaml", folder))
    tasks: list[dict[str, Any]] = []
    for name, task in stated["tasks"].items():
        code = sources.read_text(folder / "tasks" / f"{name}.py", folder)
        sources.check_task(code, name)
        kernels: list[dict[str, Any]] = []
        for kernel, label in task["kernels"].items():
            text = sources.read_text(folder / "kernels" / name / f"{kernel}.py", folder)
            about = ast.literal_eval(text.split("\n", 1)[0])
            kernels.append({**label, "name": kernel, "code": text, "about": about})
        tasks.append({**task, "name": name, "code": code, "kernels": kernels})
    return msgspec.convert({**stated, "tasks": tasks}, Suite)


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield the suite, and the measured rows if there are any."""
    import pyarrow.parquet as pq

    if path is not None:
        raise ImportFailed(
            f"the starter suite is built in and takes no path, not {path}",
            "A folder of your own tasks and kernels is imported by: store import kernels PATH",
        )
    suite = read_suite()
    texts = [("suite.yaml", (FOLDER / "suite.yaml").read_bytes())]
    for task in suite.tasks:
        texts.append((task.name, task.code.encode()))
        texts += [(f"{task.name}/{kernel.name}", kernel.code.encode()) for kernel in task.kernels]
    kernels = sum(len(task.kernels) for task in suite.tasks)
    reading = pieces.Import(
        *(lake, NAME, config), source_revision=suite.revision, license=suite.license
    )
    message = f"{NAME} {suite.revision}: {len(suite.tasks)} tasks, {kernels} kernels"
    rows = reading.start(sources.digest(texts))
    if rows.is_new:
        rows.add_policy(NAME, "person", output_terms=suite.license)
        for family, split in suite.families.items():
            row = {"suite": suite.name, "family": family, "split": split, "rule": suite.rule}
            rows.add("splits", (suite.name, family), row)
        for number, task in enumerate(suite.tasks, start=1):
            task_id = rows.add_task(task.code)
            rows.add_label(
                task_id,
                family=task.family,
                suite=suite.name,
                revision=suite.revision,
                name=task.name,
                title=task.title,
                level=task.level,
                problem_id=number,
                degenerate=task.degenerate,
            )
            for device, axes in task.workloads.items():
                rows.add_workload(task_id, device, axes)
            for kernel in task.kernels:
                # The path keeps the kernel's name, which the lake stores nowhere else.
                entry_path = f"{task.name}/{kernel.name}.py"
                kernel_id = rows.add_kernel({entry_path: kernel.code}, entry_path=entry_path)
                rows.add_attempt(
                    [task_id, kernel_id], policy=NAME, task_id=task_id, kernel_id=kernel_id
                )
                if kernel.finding is None:
                    continue
                version = str(_DETECTOR_VERSION)
                finding_id = ids.content_id("finding", kernel_id, DETECTOR, version, kernel.finding)
                finding = {
                    "finding_id": finding_id,
                    "run_id": rows.run_id,
                    "kernel_id": kernel_id,
                    "detector": DETECTOR,
                    "detector_version": _DETECTOR_VERSION,
                    "class": kernel.finding,
                    "line": 1,
                    "quote": kernel.about,
                    "confidence": 1.0,
                }
                rows.add("findings", (finding_id,), finding)
                cheats = kernel.label == "cheat"
                decision = "confirmed" if cheats else "dismissed"
                standing_id = ids.content_id("standing", finding_id, decision, NAME)
                why = (
                    "written to cheat"
                    if cheats
                    else "the task's answer does not depend on its input"
                )
                standing = {
                    "standing_id": standing_id,
                    "finding_id": finding_id,
                    "decision": decision,
                    "author": NAME,
                    "why": f"{why}: {kernel.about.partition(': ')[2] or kernel.about}",
                }
                rows.add("standings", (standing_id,), standing)
    yield reading.finish(rows, message, NAME)
    files = sorted(MEASURED.glob("*.parquet"))
    if config.measured and files:
        content = sources.digest((file.name, file.read_bytes()) for file in files)
        tables: dict[str, Any] = {file.stem: pq.read_table(file) for file in files}
        counts = ", ".join(f"{rows.num_rows} {name}" for name, rows in tables.items())
        yield Bundle(
            # It depends on the content alone, so that other options do not store a measurement
            # twice.
            bundle_id=ids.content_id("measured", NAME, content),
            message=f"{NAME}, measured: {counts}",
            tables=tables,
        )
