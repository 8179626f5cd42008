"""Fixtures shared by all rooms: real lakes in temporary folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import store


@pytest.fixture
def lake_url(tmp_path: Path) -> str:
    """Return the path of a lake that does not exist yet."""
    return str(tmp_path / "lake")


@pytest.fixture
def writer(lake_url: str) -> Iterator[store.Writer]:
    """Return a writer of a fresh, empty lake."""
    with store.writer(lake_url, author="tests") as opened:
        yield opened
