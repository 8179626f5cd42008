"""Fixtures shared by all rooms: real lakes in temporary folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import store

JUDGED = ("evaluators", "trainers")
"""Folders of tests that judge real processes by the clock."""
STRICT = ("test_adversarial.py", "test_checks.py", "test_sandbox.py")
"""Files of theirs that are tried once: what has escaped once has escaped."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Try what judges by the clock up to three times: a busy machine can exceed any limit.

    Only what fails every time fails; `-rR` names what was tried again. Where pytest-rerunfailures
    is not installed, everything is tried once.
    """
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    folders = [Path(__file__).parent / name for name in JUDGED]
    for item in items:
        if item.path.parent in folders and item.path.name not in STRICT:
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))


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
