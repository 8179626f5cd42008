"""The tables in evaluators/README.md follow the catalog and the flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.cli import reference
from store.schema import catalog

README = Path(__file__).parents[2] / "evaluators" / "README.md"


def test_the_readme_has_the_generated_tables() -> None:
    page = README.read_text("utf-8")
    assert page == reference.fill_tables(page), "stale: run `make docs`"


def test_every_status_has_a_meaning() -> None:
    assert {*reference.STATUSES} == {*catalog.load().enums["evaluation_status"].values}


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="statuses"):
        reference.fill_tables("# A page\n")
