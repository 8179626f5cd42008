"""Tasks of KernelBench: a checkout (KernelBench/level1/12_Name.py) or the Hub dataset's Parquet.

--revision is required, because tasks of one name differ between revisions of the benchmark. Each
level folder or Parquet file is stored as one bundle; files that are not tasks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import store
from store.code import task_families
from store.errors import ImportFailed
from store.foreign import left_out
from store.foreign.parquet import check_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "kernelbench"
SUITE = "kernelbench"
_LEVEL = re.compile(r"level_?([0-9]{1,3})")
_STEM = re.compile(r"([0-9]{1,6})_(.*)", re.DOTALL)
_COLUMNS = ("code", "level", "name", "problem_id")


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    revision: str | None = None
    """Revision of the suite, such as v0, v0.1 or v0.2; required."""
    source_revision: str | None = None
    """Commit of the checkout or the Hub repository (default: the checkout's HEAD)."""
    license: str | None = "MIT"


def recognize(path: Path) -> str | None:
    patterns = "level[1-9]/*.py", "KernelBench/level[1-9]/*.py"
    for file in sources.list_files(path, *patterns):
        if path.is_dir() and split_stem(file.stem):
            return f"{file.relative_to(path)}: a numbered task in the folder of a level"
    return sources.find_columns(path, "code", "level", "name", "problem_id")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per level folder or Parquet file."""
    root = sources.require_path(path, "a KernelBench checkout or the Hub dataset's folder")
    if config.revision is None:
        raise ImportFailed(
            "the revision of KernelBench is missing",
            "Add --revision v0, v0.1 or v0.2: their texts differ under the same names.",
        )
    revision = config.revision
    folder = root if root.is_dir() else root.parent
    source_revision = config.source_revision or sources.git_head(folder, folder.parent)
    groups = list(_read_levels(root, folder))
    if not groups:
        files = [root] if root.is_file() and root.suffix == ".parquet" else []
        if root.is_dir():
            files = sorted(root.glob("*.parquet")) or sorted((root / "data").glob("*.parquet"))
        check_files(files)
        groups = [_read_parquet(file, folder) for file in files]
    if not groups:
        raise ImportFailed(
            f"{root} holds no KernelBench tasks",
            "Name a checkout (KernelBench/level1/*.py), or a folder with data/*.parquet.",
        )
    families: dict[str, str] = {}
    readable: list[_Group] = []
    for name, content, tasks in groups:
        kept: list[Fields] = []
        for task in tasks:
            with left_out.errors():
                code = task.require_code("code")
                sources.check_task(code, task.where)
                for column in ("level", "problem_id"):
                    task.require_whole(column)
                families[code] = task_families.classify_family(code)
                kept.append(task)
                left_out.note_kept()
        if kept:
            readable.append((name, content, kept))
    splits = pieces.decide_splits(SUITE, families.values(), lake)
    reading = pieces.Import(lake, NAME, config, source_revision=source_revision)
    for name, content, tasks in readable:
        # A commit read from the checkout is stored too, so that it is part of the identity.
        rows = reading.start(f"{name} {content} {source_revision}")
        if rows.is_new:
            for task in tasks:
                code, level = task.require_code("code"), task.require_whole("level")
                problem_id = task.require_whole("problem_id")
                rows.add_label(
                    rows.add_task(code),
                    family=families[code],
                    suite=SUITE,
                    revision=revision,
                    name=f"level{level}/{problem_id}",
                    title=task.text("title"),
                    level=level,
                    problem_id=problem_id,
                )
            rows.add_splits(splits)
        yield reading.finish(rows, f"{NAME} {revision} {name}: {len(tasks)} tasks", name)


_Group: TypeAlias = "tuple[str, str, list[Fields]]"
"""Name of a level folder or Parquet file, the hash of its content, and its tasks, each with code,
level, problem_id and title."""


def split_stem(stem: str) -> tuple[int, str] | None:
    """Return problem number and title of a task's file name without .py.

    >>> split_stem("12_Matmul_with_diagonal_matrices_")
    (12, 'Matmul with diagonal matrices')
    """
    match = _STEM.fullmatch(stem)
    return (int(match[1]), match[2].replace("_", " ").strip()) if match else None


def _read_levels(root: Path, folder: Path) -> Iterator[_Group]:
    """Yield the tasks of each level folder, from its files that have the names of tasks."""
    for base in (root, root / "KernelBench"):
        levels = {
            int(match[1]): inner
            for inner in (base.iterdir() if base.is_dir() else ())
            if (match := _LEVEL.fullmatch(inner.name)) and inner.is_dir()
        }
        for level, inner in sorted(levels.items()):
            contents: list[tuple[str, bytes]] = []
            tasks: list[Fields] = []
            for file in sorted(inner.glob("*.py")):
                if (named := split_stem(file.stem)) is None:
                    continue
                with left_out.errors():
                    data = sources.read_bytes(file, folder)
                    task: dict[str, Any] = {"code": sources.decode(data, file), "level": level}
                    task |= {"problem_id": named[0], "title": named[1]}
                    contents.append((file.name, data))
                    tasks.append(Fields(values=task, where=f"{file}"))
            if tasks:
                yield inner.name, sources.digest(contents), tasks


def _read_parquet(file: Path, root: Path) -> _Group:
    content = sources.digest([(file.name, sources.read_bytes(file, root))])
    tasks: list[Fields] = []
    batches = sources.read_batches(file, dict.fromkeys(_COLUMNS, True), 64)
    for number, row in enumerate((row for batch in batches for row in batch), start=1):
        fields = Fields(values=row, where=f"{file}, row {number}")
        with left_out.errors():
            name = fields.require_text("name")
            named = split_stem(name.removesuffix(".py"))
            task = {**row, "title": named[1] if named else name}
            tasks.append(Fields(values=task, where=fields.where))
    return file.stem, content, tasks
