"""The layout that CONTRIBUTING describes: faces and members in the open, machinery in folders.

Which folder may import which is in pyproject.toml's import contracts.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOMS = ("store", "evaluators", "pipelines", "trainers")
NO_ROOMS = ("tests", "benchmarks", "lab")
PROGRAMS = (*ROOMS, *NO_ROOMS)
DATA = ("store/starter", "tests/evaluators/adversarial")
"""Folders whose Python files are tasks and kernels: data, not modules."""

PRIVATE = re.compile(
    # imported,
    r"^\s*(?:from|import)\b[^\n(]*(?:\([^)]*)?\b_(?!_)\w"
    # reached through another name than those of methods,
    r"|(?<![\w.])(?!(?:self|cls)\.)\w[\w.]*\._(?!_)\w"
    # or in a string.
    rf"|[\"'](?:{'|'.join(PROGRAMS)})[\w.]*\._(?!_)",
    re.M,
)
"""What a file has that names something private of another one; parsing all files takes 10 s."""
OUTSIDE = re.compile(rf"^\s*(?:from|import)\b[^\n]*\b(?:{'|'.join(NO_ROOMS)})\b", re.M)
ADVICE = "Make the name public, or use what its folder exports:"


def modules(*folders: str) -> list[Path]:
    """List the Python files of some top-level folders, relative to the repository."""
    found = (
        path.relative_to(REPOSITORY)
        for folder in folders
        for path in (REPOSITORY / folder).rglob("*.py")
    )
    return sorted(path for path in found if not path.as_posix().startswith(DATA))


@cache
def find_modules(pattern: re.Pattern[str], *folders: str) -> list[Path]:
    """List those files that a pattern is found in."""
    return [
        path for path in modules(*folders) if pattern.search((REPOSITORY / path).read_text("utf-8"))
    ]


@cache
def syntax(path: Path) -> tuple[ast.AST, ...]:
    """Return the nodes of a file that import, read an attribute or are a constant."""
    tree = ast.parse((REPOSITORY / path).read_text(), str(path))
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Constant)
    return tuple(node for node in ast.walk(tree) if isinstance(node, kinds))


def imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the local name and the full dotted name of each imported name."""
    package = path.parent.parts
    for node in syntax(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, alias.asname or alias.name, f"{source}.{alias.name}"


def dotted_name(node: ast.expr) -> str:
    """Return `a.b.c` as it is written, or "" for what is not a name of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def find_uses(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each dotted name that a file reads through an import or passes as a string.

    Strings are what monkeypatch and entry points take.
    """
    imported = {local: full for _, local, full in imports(path)}
    for node in syntax(path):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            name = dotted_name(node)
            heads = [local for local in imported if name.startswith(f"{local}.")]
            for local in heads:
                yield node.lineno, imported[local] + name[len(local) :]
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(rf"({'|'.join(PROGRAMS)})(\.\w+)+", node.value)
        ):
            yield node.lineno, node.value


def is_private_elsewhere(name: str, path: Path) -> bool:
    """Whether a dotted name of ours is private to another folder than that of a file."""
    parts = name.split(".")
    if parts[0] not in PROGRAMS:
        return False
    for at, part in enumerate(parts):
        if part.startswith("_") and not part.startswith("__"):
            owner = Path(*parts[:at])
            folder = owner if (REPOSITORY / owner).is_dir() else owner.parent
            return folder != path.parent
    return False


def test_no_private_name_is_imported_from_another_folder() -> None:
    offenders = [
        f"{path}:{line} imports {name}"
        for path in find_modules(PRIVATE, *PROGRAMS)
        for line, _, name in imports(path)
        if is_private_elsewhere(name, path)
    ]
    assert not offenders, "\n".join([ADVICE, *offenders])


def test_no_private_name_is_reached_through_another_folders_module() -> None:
    offenders = [
        f"{path}:{line} reaches for {name}"
        for path in find_modules(PRIVATE, *PROGRAMS)
        for line, name in find_uses(path)
        if is_private_elsewhere(name, path)
    ]
    assert not offenders, "\n".join([ADVICE, *offenders])


@pytest.mark.parametrize("room", ROOMS)
def test_bare_files_of_a_room_are_faces_and_members(room: str) -> None:
    machinery = [
        path.name
        for path in (REPOSITORY / room).glob("_*.py")
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert not machinery, "machinery belongs in a folder that is named by its noun"


@pytest.mark.slow
def test_every_module_can_be_imported() -> None:
    names = [
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in modules(*ROOMS)
        if path.name != "__main__.py"
    ]
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_rooms_import_nothing_that_is_left_out_of_the_wheel() -> None:
    offenders = [
        f"{path}:{line} imports {name}"
        for path in find_modules(OUTSIDE, *ROOMS)
        for line, _, name in imports(path)
        if name.partition(".")[0] in NO_ROOMS
    ]
    assert not offenders
