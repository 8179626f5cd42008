"""The names that `evaluators` exports: each exists, and importing the room loads none of them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import evaluators


def run(script: str) -> str:
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_every_exported_name_exists() -> None:
    parts = ast.walk(ast.parse(Path(evaluators.__file__).read_text()))
    homes = [part for part in parts if isinstance(part, ast.ImportFrom) and part.level == 0]
    names = [one.name for home in homes if home.module != "typing" for one in home.names]
    names = [name for name in names if name not in ("annotations", "load_lazily")]
    assert len(names) > 10
    assert all(getattr(evaluators, name).__name__ == name for name in names)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        evaluators.Nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_room_loads_neither_torch_nor_the_store() -> None:
    script = (
        "import sys\nbefore = set(sys.modules)\nimport evaluators\n"
        "print([n for n in set(sys.modules) - before if n.split('.')[0] in ('torch', 'store')])"
    )
    assert run(script) == "[]"


@pytest.mark.slow
def test_a_worker_imports_nothing_of_the_store() -> None:
    script = (
        "import sys\nimport evaluators.worker.fork_server\nimport evaluators.worker.replay\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] == 'store'))"
    )
    assert run(script) == "[]"
