"""Queries in docs/ run on a lake with the rows of a run, and give the published answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import store
from lab.merge import merge
from store.commandline import display

DOCS = Path(__file__).parents[2] / "docs"
RUN = DOCS / "runs" / "history-1"
QUERIES = [str(file.relative_to(DOCS)) for file in sorted(DOCS.rglob("*.sql"))]
PUBLISHED = [name for name in QUERIES if (RUN / Path(name).with_suffix(".csv").name).exists()]
OTHERS = {
    "audit/device_code.sql": 0,
    "audit/distinct_texts.sql": 1,
    "audit/headline_means.sql": 0,
    "audit/orphan_scores.sql": 0,
    "audit/same_as_a100.sql": 0,
    "audit/scored_but_broken.sql": 0,
    "audit/top_scores.sql": 0,
    "h200/agreement.sql": 0,
    "h200/clocks.sql": 0,
    "h200/devices.sql": 0,
    "h200/equivalence.sql": 0,
    "h200/failures.sql": 0,
    "h200/falls.sql": 0,
    "h200/fastest.sql": 0,
    "h200/levels.sql": 0,
    "h200/parts.sql": 0,
    "h200/recurrent.sql": 0,
    "h200/repeats.sql": 0,
    "h200/runs.sql": 36,
    "h200/tf32.sql": 0,
    "h200/unconfirmed.sql": 0,
    "h200/without_compile.sql": 1,
    "runs/arms.sql": 0,
    "runs/loop.sql": 20,
    "runs/stages.sql": 4,
    "runs/steps.sql": 0,
    "runs/training_answers.sql": 0,
    "runs/training_curves.sql": 0,
}
"""Rows that queries without a published answer give: 0 for those about releases or about training,
which this run has none of. Tests of their importers and views have rows for them."""
SLOW = "runs/uses.sql"
"""It measures the distance of each answer to each exemplar, which takes seconds."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return the lake of a run: 12,354 attempts and 2,766 verdicts."""
    url = str(tmp_path_factory.mktemp("run") / "lake")
    assert merge(url, RUN / "tables")["generations"] == 12_354
    with store.open(url) as opened:
        yield opened


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == SLOW else ()) for name in PUBLISHED],
)
def test_a_query_gives_the_published_answer(name: str, lake: store.Lake, tmp_path: Path) -> None:
    answer = tmp_path / "answer.csv"
    display.write_rows(lake.sql((DOCS / name).read_text("utf-8")).arrow(), "csv", answer)
    published = RUN / Path(name).with_suffix(".csv").name
    assert answer.read_text("utf-8") == published.read_text("utf-8")


def test_every_other_query_runs(lake: store.Lake) -> None:
    rows = {
        name: lake.sql((DOCS / name).read_text("utf-8")).arrow().num_rows
        for name in QUERIES
        if name not in PUBLISHED
    }
    assert rows == OTHERS
