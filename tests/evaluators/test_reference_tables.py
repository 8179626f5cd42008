"""docs/tables-verdicts.md follows the catalog, the flags and the limits."""

from __future__ import annotations

from evaluators.cli import reference
from evaluators.judging.flags import FLAGS
from store.schema import catalog


def test_the_page_is_the_generated_one() -> None:
    page = reference.PAGE.read_text("utf-8")
    assert page == reference.render_page(), "stale: run `make docs`"
    for flag, meaning in FLAGS.items():
        assert f"| `{flag}` | {meaning} |" in page


def test_every_status_has_a_meaning() -> None:
    assert {*reference.STATUSES} == {*catalog.load().enums["evaluation_status"].values}
