"""The names that `evaluators` exports: each exists, and importing the room loads none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import evaluators


def run(script: str) -> str:
    words = [sys.executable, "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def test_every_exported_name_exists() -> None:
    assert all(getattr(evaluators, name).__name__ == name for name in evaluators.EXPORTS)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        evaluators.Nothing  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_room_loads_neither_torch_nor_the_store() -> None:
    script = (
        "import sys\nbefore = set(sys.modules)\nimport evaluators\n"
        "print([n for n in set(sys.modules) - before if n.split('.')[0] in ('torch', 'store')])"
    )
    assert run(script) == "[]"


def test_a_worker_imports_nothing_of_the_store() -> None:
    script = (
        "import sys\nimport evaluators.worker.fork_server\nimport evaluators.worker.replay\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] == 'store'))"
    )
    assert run(script) == "[]"
