"""Every query in docs/ runs on the lake of this version."""

from __future__ import annotations

from pathlib import Path

import pytest

import store

DOCS = Path(__file__).parents[2] / "docs"
QUERIES = sorted(DOCS.rglob("*.sql"))


@pytest.mark.parametrize("file", QUERIES, ids=[str(one.relative_to(DOCS)) for one in QUERIES])
def test_a_query_in_the_docs_runs(writer: store.Writer, file: Path) -> None:
    with writer.reader() as lake:
        lake.sql(file.read_text("utf-8")).arrow()
