"""A folder of your own tasks and candidates.

The folder has either tasks/NAME.py with the candidates in kernels/NAME/, or one task.py with its
candidates beside it. A candidate is a file CANDIDATE.py, .cu or .cpp, or a folder CANDIDATE/ with
kernel.py and further files (.cu, .cpp, .h …). Tasks are in KernelBench's format, and candidates
define ModelNew or another entry point (see --entry-point). Each task is stored as one bundle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import store
from store.code import entry_points, task_families
from store.commandline.members import AuthorOption
from store.errors import ImportFailed, UnknownName
from store.foreign import left_out
from store.ids import content_id
from store.importers.reading import pieces, sources

NAME = "kernels"
TASK_FILE = "task.py"


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    suite: str | None = None
    """Suite of the tasks (default: the folder's name)."""
    suite_revision: str = "local"
    """Revision of the suite."""
    policy: AuthorOption = "local"
    """Who wrote the kernels."""
    entry_point: str = "ModelNew"
    """Class or function that the candidates define. Without ModelNew, a candidate may also define
    Model, custom_kernel, run, solution, kernel_fn or kernel_function. A .cu or .cpp file binds
    forward."""
    source_revision: str | None = None
    """Commit of the folder (default: its git HEAD if it is a checkout)."""


def recognize(path: Path) -> str | None:
    if (path / TASK_FILE).is_file():
        return f"{TASK_FILE} with candidates beside it"
    if (path / "kernels").is_dir() and sources.list_files(path, "tasks/*.py"):
        return "the folders tasks/ and kernels/"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per task."""
    root = sources.require_path(path, "a folder with tasks/ and kernels/, or with task.py")
    suite = config.suite or root.resolve().name
    tasks: list[tuple[str, str, str, Path]] = []
    for task, file, folder in _find_tasks(root):
        with left_out.errors():
            code = sources.read_text(file, root)
            code = sources.add_init_inputs(
                code, sources.check_task(code, f"{file}", ("Model", "get_inputs"))
            )
            tasks.append((task, code, task_families.classify_family(code), folder))
            left_out.get_record().kept += 1
    splits = pieces.decide_splits(suite, [family for _, _, family, _ in tasks], lake)
    revision = config.source_revision or sources.git_head(root)
    reading = pieces.Import(
        *(lake, NAME, config), source_revision=revision, namespace=config.policy
    )
    for task, code, family, folder in tasks:
        candidates: dict[str, tuple[dict[str, str], str]] = {}
        parts = [suite, revision, task, code]
        for name, files in _find_candidates(folder).items():
            with left_out.errors():
                texts = {inner: sources.read_text(file, root) for inner, file in files.items()}
                main = pieces.ENTRY_PATH if pieces.ENTRY_PATH in texts else next(iter(texts))
                if not texts[main].strip():
                    raise ImportFailed(f"{files[main]} is empty")
                entry_point = config.entry_point
                if main != pieces.ENTRY_PATH:
                    if entry_point == entry_points.DEFAULT:
                        entry_point = entry_points.NATIVE_FUNCTION
                    texts[pieces.ENTRY_PATH] = entry_points.NATIVE_LOADER.format(
                        name=main, function=entry_point
                    )
                elif entry_point == entry_points.DEFAULT:
                    entry_point = entry_points.choose_stored(texts[main], copies=True)
                candidates[name] = texts, entry_point
                left_out.get_record().kept += 1
                for inner, text in texts.items():
                    parts += [name, inner, text]
        where = f"{suite}/{task}"
        rows = reading.start(content_id(*parts))
        if rows.is_new:
            task_id = rows.add_task(code)
            rows.add_label(
                task_id,
                family=family,
                suite=suite,
                revision=config.suite_revision,
                name=task,
                title=task.replace("_", " "),
            )
            rows.add_splits(splits)
            rows.add_policy(config.policy, "person")
            for name, (texts, entry_point) in candidates.items():
                source = f"{suite}/{task}/{name}"
                kernel_id = rows.add_kernel(texts, source=source, entry_point=entry_point)
                # The same text under two names is one kernel and one attempt.
                rows.add_attempt(
                    [task_id, kernel_id],
                    policy=config.policy,
                    policy_kind="person",
                    task_id=task_id,
                    kernel_id=kernel_id,
                    source=source,
                )
        yield reading.finish(rows, f"{NAME} {where}: {len(candidates)} candidates", where)


def _find_tasks(root: Path) -> list[tuple[str, Path, Path]]:
    """Return the name of each task, its file, and the folder of its candidates."""
    if (root / TASK_FILE).is_file():
        return [(root.resolve().name, root / TASK_FILE, root)]
    names = {file.stem: file for file in sorted((root / "tasks").glob("[!_.]*.py"))}
    if not names:
        raise ImportFailed(
            f"{root} holds no tasks",
            "Lay it out as tasks/NAME.py and kernels/NAME/CANDIDATE.py, or as task.py with the "
            "candidates beside it. `evaluators add FILE --task TASK` stores one kernel of a task "
            "of the lake; `store import detect PATH` names the importer for other formats.",
        )
    kernels = root / "kernels"
    for folder in sorted(kernels.iterdir()) if kernels.is_dir() else []:
        if folder.is_dir() and not folder.name.startswith((".", "_")) and folder.name not in names:
            unknown = UnknownName.among("task", folder.name, names)
            raise ImportFailed(f"{folder}: there is no tasks/{folder.name}.py", unknown.hint)
    return [(name, file, kernels / name) for name, file in names.items()]


def _find_candidates(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files of each candidate by their paths inside it."""
    candidates: dict[str, dict[str, Path]] = {}
    for entry in sorted(folder.iterdir()) if folder.is_dir() else []:
        if entry.name.startswith((".", "_")) or entry.name == TASK_FILE:
            continue
        if entry.is_dir():
            files = {
                file.relative_to(entry).as_posix(): file
                for file in sorted(entry.rglob("*"))
                if not file.is_dir()
                and not any(
                    part.startswith(".") or part == "__pycache__"
                    for part in file.relative_to(entry).parts
                )
            }
            if pieces.ENTRY_PATH not in files:
                raise ImportFailed(
                    f"{entry} holds no {pieces.ENTRY_PATH}", "It is the file that defines ModelNew."
                )
            name = entry.name
        elif entry.suffix == ".py":
            name, files = entry.stem, {pieces.ENTRY_PATH: entry}
        elif entry.suffix in entry_points.NATIVE:
            name, files = entry.stem, {entry.name: entry}
        else:
            continue
        if name in candidates:
            raise ImportFailed(f"{folder} holds two candidates {name}", "Rename one of them.")
        candidates[name] = files
    return candidates
