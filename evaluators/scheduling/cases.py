"""Read the texts of cases: from a lake, or for a file of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from store import read_sql
from store.errors import FlywheelError, LakeNotFound

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskText:
    """A task to check a file of the user's own against."""

    code: str
    axes: dict[str, str]
    """Axes by the kind of device; the key `default` has the default ones."""

    def make_case(self, file: Path, device_kind: str) -> dict[str, Any]:
        """Return the case of one file, which belongs to no lake."""
        code = file.read_text("utf-8", errors="surrogateescape")
        axes = self.axes.get(device_kind, self.axes.get("default", "{}"))
        task_id = store.ids.task_id(self.code)
        return {
            "kernel_id": store.ids.content_id("file", code.encode("utf-8", "replace").decode()),
            "task_id": task_id,
            "workload_id": store.ids.workload_id(task_id, axes),
            "code": code,
            "path": file.name,
            "task_code": self.code,
            "axes": axes,
            "other_files": [],
            "trusted": True,
        }


def read_task(task: str, lake_url: str | None) -> TaskText:
    """Return the task of a file, or of the lake as `store.find_task` finds it.

    Raises:
        UnknownName: no such task, or several.
        LakeNotFound: no lake to look in.
        FlywheelError: the file does not exist, or is not text.
    """
    if task.endswith(".py") and Path(task).is_file():
        return TaskText(_read_task_file(Path(task)), {})
    with _open_lake(lake_url, task) as lake:
        chosen = {"task_id": store.find_task(lake, task)["task_id"]}
        code = lake.run("SELECT code FROM tasks WHERE task_id = $task_id", chosen).rows()[0]["code"]
        settings = 'SELECT "name", axes FROM workloads WHERE task_id = $task_id'
        axes = {row["name"]: row["axes"] for row in lake.run(settings, chosen).rows()}
    return TaskText(code, axes)


def read_cases(lake: store.Lake, kernels: pa.Table, device: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of a table of kernels, in its order.

    Args:
        lake: Where the texts are.
        kernels: Columns kernel_id, task_id, workload_id, axes and compiles.
        device: Name of the device, for the best speedup so far.
    """
    import pyarrow as pa

    order = pa.array(range(kernels.num_rows), pa.int64())
    lake.register("wanted", kernels.append_column("position", order))
    for row in lake.run(read_sql(__file__, "cases"), {"device": device}).rows():
        files = row["other_files"] or []
        yield {**row, "other_files": [(file["path"], file["code"]) for file in files]}


def choose_leaders(
    cases: Sequence[dict[str, Any]], verdicts: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the kernels that training finds faster than every ranked one of their task.

    They are cases of the full protocol, one for each task, so that exemplars and rankings have the
    leaders at once.

    Args:
        cases: What the protocol training has judged, each with the best speedup before it.
        verdicts: Rows of standing_verdicts.sql, among them those of the cases.
    """
    speedups = {
        (row["kernel_id"], row["task_id"]): row["speedup"]
        for row in verdicts
        if row["status"] == "correct" and row["equivalent"] and row["speedup"] is not None
    }
    leaders: dict[str, tuple[float, dict[str, Any]]] = {}
    for case in cases:
        speedup = speedups.get((case["kernel_id"], case["task_id"]))
        best = leaders.get(case["task_id"], (case["best_speedup"] or 0.0, {}))[0]
        if speedup is not None and speedup > best:
            leaders[case["task_id"]] = speedup, {**case, "protocol": "full"}
    return [case for _, case in leaders.values()]


def _read_task_file(file: Path) -> str:
    try:
        return store.ids.normalize(file.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise FlywheelError(
            f"the task file {file} is not UTF-8 text", "Save it with the encoding UTF-8."
        ) from error


def _open_lake(lake_url: str | None, task: str) -> store.Lake:
    try:
        return store.open(lake_url)
    except LakeNotFound as error:
        if not task.endswith(".py"):
            raise
        raise FlywheelError(
            f"no task file {task}",
            "Give the path of a Python file, or the name of a task in a lake.",
        ) from error
