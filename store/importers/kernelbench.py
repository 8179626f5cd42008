"""Tasks of KernelBench: a checkout (KernelBench/level1/12_Name.py) or the Hub dataset's Parquet.

--revision is required, because tasks of one name differ between revisions of the benchmark. Each
level folder or Parquet file is stored as one bundle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import store
from store.code import task_families
from store.errors import ImportFailed
from store.foreign.parquet import check_files
from store.importers.reading import detection, parquet, pieces, sources
from store.importers.reading.rows import BundleRows, decide_splits

NAME = "kernelbench"
SUITE = "kernelbench"
_LEVEL = re.compile(r"level_?([0-9]{1,3})")
_STEM = re.compile(r"([0-9]{1,6})_(.*)", re.DOTALL)
_COLUMNS = ("code", "level", "name", "problem_id")


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    """Options of the kernelbench importer."""

    revision: str | None = None
    """Revision of the suite, such as v0, v0.1 or v0.2; required."""
    source_revision: str | None = None
    """Commit of the checkout or the Hub repository (default: the checkout's HEAD)."""
    license: str | None = "MIT"


def recognize(path: Path) -> str | None:
    """Return what shows that a path has the tasks of KernelBench."""
    patterns = "level[1-9]/*.py", "KernelBench/level[1-9]/*.py"
    for file in detection.list_files(path, *patterns):
        if path.is_dir() and split_stem(file.stem):
            return f"{file.relative_to(path)}: a numbered task in the folder of a level"
    return detection.find_columns(path, "code", "level", "name", "problem_id")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per level folder or Parquet file."""
    root = sources.require_path(path, "a KernelBench checkout or the Hub dataset's folder")
    if config.revision is None:
        raise ImportFailed(
            "the revision of KernelBench is not said",
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
    families = [task.family for group in groups for task in group.tasks]
    splits = decide_splits(SUITE, families, lake)
    reading = pieces.Import(lake, NAME, config, source_revision=source_revision)
    for group in groups:

        def add(rows: BundleRows, tasks: list[_Task] = group.tasks) -> None:
            for task in tasks:
                rows.add_label(
                    rows.add_task(task.code),
                    family=task.family,
                    suite=SUITE,
                    revision=revision,
                    name=f"level{task.level}/{task.problem_id}",
                    title=task.title,
                    level=task.level,
                    problem_id=task.problem_id,
                )
            rows.add_splits(splits)

        yield reading.make_bundle(
            # A commit read from the checkout is stored too, so that it is part of the identity.
            f"{group.name} {group.content} {source_revision}",
            f"{NAME} {revision} {group.name}: {len(group.tasks)} tasks",
            group.name,
            add,
        )


@dataclass(frozen=True, kw_only=True)
class _Task:
    code: str
    level: int
    problem_id: int
    title: str
    family: str


@dataclass(frozen=True, kw_only=True)
class _Group:
    """The tasks of one level folder or Parquet file."""

    name: str
    content: str
    tasks: list[_Task]


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
            tasks: list[_Task] = []
            for file in sorted(inner.glob("*.py")):
                named = split_stem(file.stem)
                if named is not None:
                    data = sources.read_bytes(file, folder)
                    contents.append((file.name, data))
                    tasks.append(_make_task(sources.decode(data, file), level, *named, f"{file}"))
            if tasks:
                yield _Group(name=inner.name, content=sources.digest(contents), tasks=tasks)


def _read_parquet(file: Path, root: Path) -> _Group:
    content = sources.digest([(file.name, sources.read_bytes(file, root))])
    tasks: list[_Task] = []
    batches = parquet.read_batches(file, dict.fromkeys(_COLUMNS, True), 64)
    for number, row in enumerate((row for batch in batches for row in batch), start=1):
        where = f"{file}, row {number}"
        code, level, name, problem_id = (row[column] for column in _COLUMNS)
        if not (isinstance(code, str) and isinstance(name, str)):
            raise ImportFailed(f"{where}: code and name are texts, neither of them NULL")
        if not (isinstance(level, int) and isinstance(problem_id, int)):
            raise ImportFailed(f"{where}: level and problem_id are numbers, neither of them NULL")
        if not (0 < level < 1000 and 0 < problem_id < 1_000_000):
            raise ImportFailed(f"{where}: there is no level {level}, problem {problem_id}")
        named = split_stem(name.removesuffix(".py"))
        tasks.append(_make_task(code, level, problem_id, named[1] if named else name, where))
    return _Group(name=file.stem, content=content, tasks=tasks)


def _make_task(code: str, level: int, problem_id: int, title: str, where: str) -> _Task:
    sources.check_task(code, where)
    family = task_families.classify_family(code)
    return _Task(code=code, level=level, problem_id=problem_id, title=title, family=family)
