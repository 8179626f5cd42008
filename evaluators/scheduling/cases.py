"""Read the texts of cases: from a lake, or for a file of the user's own."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import store
from evaluators.judging.case import Case, parse_axes
from evaluators.limits.kinds import refuse_limit
from store import read_sql
from store.code import entry_points
from store.code.entry_points import count_arguments, find_entry_point, list_classes
from store.errors import FlywheelError, LakeNotFound, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    from store.importers.reading.task_formats import TaskFile

_TASK_FILES = (".py", ".json", ".yml")
_SOURCES = (".py", ".cuh", ".h", ".hpp", ".cc", *entry_points.NATIVE)
_KERNEL_FILES = "a file that ends in .py, .cu or .cpp, or a folder of such files"
_USUAL_FILES = ("kernel.py", "submission.py", "solution.py", "main.py")
_MOST_LISTED = 8


@dataclass(frozen=True, kw_only=True)
class TaskText:
    """A task to check a file of the user's own against."""

    code: str
    axes: dict[str, str]
    """Axes by the name of the workload; in a lake, by the kind of device or `default`."""
    file: TaskFile | None = None
    """The file or folder that it was read from, if it is not from a lake."""

    def make_case(self, kernel: KernelText, device_kind: str, workload: str | None) -> Case:
        """Return the case of a kernel, which belongs to no lake.

        Raises FlywheelError if there is no such workload, or one is needed.
        """
        code = self.code
        if self.file is not None and self.file.function_code and not kernel.is_class:
            code = self.file.function_code
        axes = self._choose_axes(device_kind, workload)
        files = dict(self.file.files if self.file is not None else ()) | dict(kernel.other_files)
        files.pop(kernel.path, None)
        task_id = store.ids.task_id(code)
        text = kernel.code.encode("utf-8", "replace").decode()
        return Case(
            kernel_id=store.ids.content_id("file", text),
            task_id=task_id,
            workload_id=store.ids.workload_id(task_id, axes),
            code=kernel.code,
            path=kernel.path,
            entry_point=kernel.entry_point,
            task_code=code,
            axes=axes,
            other_files=tuple(files.items()),
            trusted=True,
        )

    def _choose_axes(self, device_kind: str, workload: str | None) -> str:
        names = ", ".join(list(self.axes)[:_MOST_LISTED])
        if workload is not None and "=" in workload:
            # An input that is a number is INPUT_name.
            required = self.file.required if self.file is not None else ()
            given = parse_axes(workload, "--workload").items()
            inputs = {name: f"INPUT_{name}" for name, _ in given if f"INPUT_{name}" in required}
            values = {inputs.get(name, name): value for name, value in given}
            missing = [name for name in required if name not in values]
            if missing:
                raise FlywheelError(
                    f"--workload lacks {', '.join(missing)}",
                    "Give a value for each axis, such as --workload M=256,K=64.",
                )
            return json.dumps(values, sort_keys=True)
        if workload is not None:
            if workload not in self.axes:
                raise FlywheelError(
                    f"the task has no workload {workload!a:.80}",
                    f"It has {names}." if names else "Give values, such as --workload M=256.",
                )
            return self.axes[workload]
        if self.file is None:
            return self.axes.get(device_kind, self.axes.get("default", "{}"))
        if not self.axes and self.file.required:
            values = ",".join(f"{name}=…" for name in self.file.required)
            raise FlywheelError(
                f"the task has no workload for its axes {', '.join(self.file.required)}",
                f"Give the values, such as --workload {values}.",
            )
        return next(iter(self.axes.values()), "{}")


@dataclass(frozen=True, kw_only=True)
class KernelText:
    """A kernel of the user's own file or folder."""

    code: str
    path: str
    entry_point: str
    is_class: bool
    """Whether the entry point is a class, as far as the text tells."""
    other_files: tuple[tuple[str, str], ...] = ()

    @property
    def own_files(self) -> dict[str, str]:
        """The files that the user wrote, by path: without one that only loads a native file."""
        files = dict(self.other_files)
        head, _, _ = entry_points.NATIVE_LOADER.partition("{")
        is_loader = len(files) == 1 and self.code.startswith(head)
        return files if is_loader else files | {self.path: self.code}


def read_kernel(file: Path, entry_point: str | None, task: TaskText) -> KernelText:
    """Return the kernel of a Python, CUDA or C++ file, or of a folder with several files.

    entry_point: NAME, or MODULE:NAME in a folder; None chooses by `store.code.entry_points`.

    Raises FlywheelError if there is no such file, or several entry points.
    """
    module, _, name = (entry_point or "").replace("::", ":").rpartition(":")
    if not file.exists():
        raise FlywheelError(f"no file {file}", f"Give the path of {_KERNEL_FILES}.")
    files: dict[str, str] = {}
    if file.is_dir():
        files = {
            one.relative_to(file).as_posix(): one.read_text("utf-8", errors="surrogateescape")
            for one in sorted(file.rglob("*"))
            if one.suffix in _SOURCES and one.is_file() and not one.is_symlink()
        }
        named = module.removesuffix(".py").replace(".", "/")
        usual = [f"{named}.py"] if named else list(_USUAL_FILES)
        python = [path for path in files if path.endswith(".py")]
        if not named and len(python) == 1:
            usual += python
        path = next((path for path in usual if path in files), "")
        if not path:
            if not files:
                raise FlywheelError(
                    f"{file} is a folder without a kernel", f"Give {_KERNEL_FILES}."
                )
            raise FlywheelError(
                f"{file} has no file {usual[0]}",
                "Name the file and the class or function: --entry-point MODULE:NAME.",
            )
        code = files.pop(path)
    elif file.suffix in entry_points.NATIVE:
        name = name or entry_points.NATIVE_FUNCTION
        text = file.read_text("utf-8", errors="surrogateescape")
        return KernelText(
            code=entry_points.NATIVE_LOADER.format(name=file.name, function=name),
            path="kernel.py",
            entry_point=name,
            is_class=False,
            other_files=((file.name, text),),
        )
    elif file.suffix != ".py":
        raise FlywheelError(
            refuse_limit("languages", f"{file} is neither Python nor CUDA nor C++"),
            f"Give {_KERNEL_FILES}. `store import detect {file}` names the importer for data.",
        )
    else:
        code, path = file.read_text("utf-8", errors="surrogateescape"), file.name
        if module and module.removesuffix(".py") != file.stem:
            raise FlywheelError(
                f"--entry-point names the module {module!a:.80}, and {file} is one file",
                "Give the folder that has the modules.",
            )
    arguments = count_arguments(task.code) if task.file is None else task.file.arguments
    chosen = name or find_entry_point(code, arguments) or entry_points.DEFAULT
    if task.file is not None and task.file.destination is not None:
        filled = (task.file.arguments or 0) + task.file.destination.outputs
        if entry_points.count_parameters(code, chosen) == filled:
            files |= {path: code}
            module = path.removesuffix(".py").replace("/", ".")
            code = task.file.destination.code.format(module=module, function=chosen)
            path = "destination.py"
    is_class = chosen in (entry_points.DEFAULT, entry_points.COPY) or chosen in list_classes(code)
    return KernelText(
        code=code,
        path=path,
        entry_point=chosen,
        is_class=is_class,
        other_files=tuple(files.items()),
    )


def read_task(task: str, lake_url: str | None) -> TaskText:
    """Return the task of a file or folder, or of the lake as `store.find_task` finds it.

    Raises:
        UnknownName: no such task, or several.
        LakeNotFound: no lake to look in.
        FlywheelError: the path does not exist, or holds no task of a known format.
    """
    path = Path(task)
    if path.exists() and (path.is_dir() or path.suffix in _TASK_FILES):
        from store.importers.reading.task_formats import UnknownFormat, read_task_path

        try:
            file = read_task_path(path)
        except UnknownFormat:
            # A folder may have the name of a task in the lake by chance.
            if not path.is_dir() or path.name != task:
                raise
            with contextlib.suppress(LakeNotFound, UnknownName):
                return _read_lake_task(task, lake_url)
            raise
        axes = {name: json.dumps(one, sort_keys=True) for name, one in file.workloads.items()}
        return TaskText(code=store.ids.normalize(file.code), axes=axes, file=file)
    return _read_lake_task(task, lake_url)


def _read_lake_task(task: str, lake_url: str | None) -> TaskText:
    try:
        opened = store.open(lake_url)
    except LakeNotFound as error:
        if not Path(task).suffix and "/" not in task:
            raise
        raise FlywheelError(
            f"no task file {task}",
            "Give the path of a task's file or folder, or the name of a task in a lake.",
        ) from error
    with opened as lake:
        chosen = {"task_id": store.find_task(lake, task)["task_id"]}
        code = lake.run("SELECT code FROM tasks WHERE task_id = $task_id", chosen).rows()[0]["code"]
        settings = 'SELECT "name", axes FROM workloads WHERE task_id = $task_id'
        axes = {row["name"]: row["axes"] for row in lake.run(settings, chosen).rows()}
    return TaskText(code=code, axes=axes)


def read_cases(lake: store.Lake, kernels: pa.Table, device: str) -> Iterator[Case]:
    """Yield the cases of a table of kernels, in its order.

    Args:
        kernels: Columns kernel_id, task_id, workload_id, axes and compiles.
        device: Name of the device, for the best speedup so far.
    """
    import pyarrow as pa

    from evaluators.judge import VERSION
    from evaluators.timing.spreads import read_spreads

    order = pa.array(range(kernels.num_rows), pa.int64())
    lake.register("wanted", kernels.append_column("position", order))
    spreads = read_spreads(lake, device, VERSION)
    for row in lake.run(read_sql(__file__, "cases"), {"device": device}).rows():
        yield Case.read({**row, "spreads": spreads})


def choose_leaders(cases: Sequence[Case], verdicts: Sequence[Mapping[str, Any]]) -> list[Case]:
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
    leaders: dict[str, tuple[float, Case]] = {}
    for case in cases:
        speedup = speedups.get((case.kernel_id, case.task_id))
        best = leaders.get(case.task_id, (case.best_speedup or 0.0, case))[0]
        if speedup is not None and speedup > best:
            leaders[case.task_id] = speedup, replace(case, protocol="full")
    return [case for _, case in leaders.values()]
