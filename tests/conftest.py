"""Fixtures shared by all rooms: real lakes in temporary folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import store


@pytest.fixture(scope="session")
def empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a lake without rows, to be copied and never written to."""
    folder = tmp_path_factory.mktemp("empty") / "lake"
    store.writer(str(folder), author="tests").close()
    return folder


@pytest.fixture
def lake_url(tmp_path: Path) -> str:
    """Return the path of a lake that does not exist yet."""
    return str(tmp_path / "lake")


@pytest.fixture
def writer(lake_url: str, empty_lake: Path) -> Iterator[store.Writer]:
    """Return a writer of an empty lake: a copy, since making one takes a second."""
    shutil.copytree(empty_lake, lake_url)
    with store.writer(lake_url, author="tests") as opened:
        yield opened
