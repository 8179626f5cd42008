"""Every query in docs/ runs on the lake of this version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import store

DOCS = Path(__file__).parents[2] / "docs"
QUERIES = sorted(DOCS.rglob("*.sql"))


@pytest.fixture(scope="module")
def lake(empty_url: str) -> Iterator[store.Lake]:
    """Return a lake without rows, opened."""
    with store.open(empty_url) as opened:
        yield opened


@pytest.mark.parametrize("file", QUERIES, ids=[str(one.relative_to(DOCS)) for one in QUERIES])
def test_a_query_in_the_docs_runs(lake: store.Lake, file: Path) -> None:
    lake.sql(file.read_text("utf-8")).arrow()
