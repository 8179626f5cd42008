"""Fixtures of the pipelines: a small lake, and jobs over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from lake_places import LakePlaces
from pipeline_lakes import Known, Rows, add_small_rows

import store
from pipelines import contrastive_batch
from pipelines.contract import Request
from pipelines.datasets import materialize
from pipelines.datasets.job import Dataset, Job, make_counter


def start_rows() -> Rows:
    """Return a collection with one device and two policies."""
    rows = Rows()
    rows.device()
    rows.policy("writer", stage="base", round=0)
    rows.policy("student", stage="self-supervised", round=1)
    return rows


@pytest.fixture
def rows() -> Rows:
    """Return rows that hold a device and two policies."""
    return start_rows()


@pytest.fixture
def rows_and_ids() -> tuple[Rows, Known]:
    """Return the rows of the small lake, to be added to, and its ids by role."""
    rows = start_rows()
    return rows, add_small_rows(rows)


@pytest.fixture
def lake_of(
    places: LakePlaces, empty_url: str, lake_url: str
) -> Iterator[Callable[[Rows], store.Lake]]:
    """Return a function that appends collected rows to one lake and opens it."""
    opened: list[store.Lake] = []
    places.copy(empty_url, lake_url)

    def build(made: Rows) -> store.Lake:
        with store.writer(lake_url, author="tests") as writer:
            writer.append(made.tables, "tests")
        opened.append(store.open(lake_url))
        return opened[-1]

    yield build
    for one in opened:
        one.close()


@pytest.fixture(scope="session")
def small_url(places: LakePlaces, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of the small lake, which tests read and do not write."""
    url = places.choose_url(tmp_path_factory.mktemp("small") / "lake")
    rows = start_rows()
    add_small_rows(rows)
    with store.writer(url, author="tests") as writer:
        writer.append(rows.tables, "tests")
    return url


@pytest.fixture(scope="session")
def lake(small_url: str) -> Iterator[store.Lake]:
    """Return the small lake, opened."""
    with store.open(small_url) as opened:
        yield opened


@pytest.fixture(scope="session")
def known_ids() -> Known:
    """Return the ids of the small lake by role."""
    return add_small_rows(start_rows())


@pytest.fixture
def make_job() -> Callable[..., Job]:
    """Return a function that makes a job over a lake; options are those of the pipeline."""

    def make(
        lake: store.Lake,
        module: ModuleType = contrastive_batch,
        *,
        max_tokens: int | None = None,
        request: Request | None = None,
        **options: Any,
    ) -> Job:
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        return Job(
            lake=lake,
            pipeline=name,
            module=module,
            config=module.Config(**options),
            request=request or Request(),
            name=name,
            counter=make_counter(None),
            max_tokens=max_tokens,
        )

    return make


@pytest.fixture
def rows_of() -> Callable[[Job], list[dict[str, Any]]]:
    """Return a function that gives the rows of a dataset without writing it."""

    def render(job: Job) -> list[dict[str, Any]]:
        dataset = Dataset(job=job)
        tables = list(materialize.render_rows(job, dataset, materialize.select_rows(job)))
        return pa.concat_tables(tables).to_pylist()

    return render
