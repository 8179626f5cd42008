"""Tasks of KernelBench: a checkout (KernelBench/level1/12_Name.py) or the Hub dataset's Parquet.

--revision is required, because tasks of one name differ between revisions of the benchmark. Each
level folder or Parquet file is stored as one bundle; files that are not tasks are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import store
from store.errors import ImportFailed
from store.foreign.parquet import check_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "kernelbench"
SUITE = "kernelbench"
_LEVEL = re.compile(r"level_?([0-9]{1,3})")
_STEM = re.compile(r"([0-9]{1,6})_(.*)", re.DOTALL)
COLUMNS = pieces.name_columns(required="code level name problem_id", optional="")


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
    """Yield the tasks of each level folder or Parquet file in bundles."""
    root = sources.require_path(path, "a KernelBench checkout or the Hub dataset's folder")
    if config.revision is None:
        raise ImportFailed(
            "the revision of KernelBench is missing",
            "Add --revision v0, v0.1 or v0.2: their texts differ under the same names.",
        )
    folder = root if root.is_dir() else root.parent
    source_revision = config.source_revision or sources.git_head(folder, folder.parent)
    files = list(_open_levels(root, folder))
    if not files:
        found = [root] if root.is_file() and root.suffix == ".parquet" else []
        if root.is_dir():
            found = sorted(root.glob("*.parquet")) or sorted((root / "data").glob("*.parquet"))
        check_files(found)
        files = [
            replace(pieces.open_parquet(file, folder, COLUMNS), name=file.stem) for file in found
        ]
    if not files:
        raise ImportFailed(
            f"{root} holds no KernelBench tasks",
            "Name a checkout (KernelBench/level1/*.py), or a folder with data/*.parquet.",
        )
    # A commit read from the checkout is stored too, so that it is part of the identity.
    hashes = {"revision": source_revision or ""}
    yield from pieces.Import(lake, NAME, config, source_revision=source_revision).read(
        (replace(one, digest=sources.combine(files=one.digest, **hashes)) for one in files),
        lambda: partial(_add, str(config.revision)),
    )


def split_stem(stem: str) -> tuple[int, str] | None:
    """Return problem number and title of a task's file name without .py.

    >>> split_stem("12_Matmul_with_diagonal_matrices_")
    (12, 'Matmul with diagonal matrices')
    """
    match = _STEM.fullmatch(stem)
    return (int(match[1]), match[2].replace("_", " ").strip()) if match else None


def _open_levels(root: Path, folder: Path) -> Iterator[pieces.SourceFile]:
    """Yield each level folder with its files that have the names of tasks."""
    for base in (root, root / "KernelBench"):
        levels = {
            int(match[1]): inner
            for inner in (base.iterdir() if base.is_dir() else ())
            if (match := _LEVEL.fullmatch(inner.name)) and inner.is_dir()
        }
        for level, inner in sorted(levels.items()):
            files = [file for file in sorted(inner.glob("*.py")) if split_stem(file.stem)]
            if files:
                parse = partial(_parse, level=level, root=folder)
                yield pieces.open_documents(inner.name, files, folder, parse)


def _parse(file: Path, level: int, root: Path) -> Iterator[Fields]:
    values = {
        "code": sources.read_text(file, root),
        "level": level,
        "problem_id": int(file.stem.partition("_")[0]),
        "name": file.stem,
    }
    yield Fields(values=values, where=f"{file}")


def _add(revision: str, rows: pieces.BundleRows, task: Fields) -> None:
    code, level = task.require_code("code"), task.require_whole("level")
    problem_id, name = task.require_whole("problem_id"), task.require_text("name")
    family, named = pieces.classify_task(code, task.where), split_stem(name.removesuffix(".py"))
    rows.add_label(
        rows.add_task(code),
        family=family,
        suite=SUITE,
        revision=revision,
        name=f"level{level}/{problem_id}",
        title=named[1] if named else name,
        level=level,
        problem_id=problem_id,
    )
