"""A dataset as a stream of rows, without files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import store
from pipelines.contract import Request
from pipelines.datasets.job import Dataset, Job, make_counter
from pipelines.datasets.materialize import render_rows, select_rows
from store.commandline import members
from store.errors import UnknownName

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa


def stream(
    pipeline: str, lake: store.Lake, *, max_tokens: int | None = None, **options: Any
) -> datasets.IterableDataset:
    """Return the rows of a pipeline as a `datasets.IterableDataset`, without files.

    They are the rows that `pipelines run` writes at the lake's snapshot, in the same order. The
    rows are chosen now, and their texts made each time that they are read. The lake has to be open
    then; workers of a DataLoader open it themselves. Nothing is recorded in it.

    Args:
        max_tokens: Leave out rows with more tokens, estimated as bytes / 4.
        options: Options of the pipeline, such as device="H200", or of every pipeline, such as
            limit=100.

    Raises:
        UnknownName: there is no such pipeline or option.
        EmptyDataset: the pipeline finds no row.
    """
    from datasets import Features, IterableDataset

    rows = _Rows(pipeline, lake, max_tokens, options)
    features = Features.from_arrow_schema(next(rows.render()).schema)
    return IterableDataset.from_generator(rows, features=features)


class _Rows:
    """Makes the rows of a stream. A copy in another process opens the lake there."""

    def __init__(
        self, pipeline: str, lake: store.Lake, max_tokens: int | None, options: dict[str, Any]
    ) -> None:
        module = members.find_member("pipelines", pipeline).load()
        of_pipeline = {one.name for one in fields(module.Config)}
        of_all = {one.name for one in fields(Request)}
        for name in options:
            if name not in of_pipeline | of_all:
                raise UnknownName.among(f"option of {pipeline}", name, of_pipeline | of_all)
        self._options = options
        self._job = Job(
            lake=lake,
            pipeline=pipeline,
            module=module,
            config=module.Config(**{n: v for n, v in options.items() if n in of_pipeline}),
            request=Request(**{n: v for n, v in options.items() if n in of_all}),
            name=pipeline,
            counter=make_counter(None),
            max_tokens=max_tokens,
        )
        self._selection = select_rows(self._job)

    def render(self) -> Iterator[pa.Table]:
        """Yield the rows in batches."""
        return render_rows(self._job, Dataset(job=self._job), self._selection)

    def __call__(self) -> Iterator[dict[str, Any]]:
        for table in self.render():
            yield from table.to_pylist()

    def __reduce__(self) -> tuple[Any, ...]:
        job = self._job
        place = job.lake.url, job.lake.snapshot
        return _open_rows, (job.pipeline, place, job.max_tokens, self._options)


def _open_rows(
    pipeline: str, place: tuple[str, int], max_tokens: int | None, options: dict[str, Any]
) -> _Rows:
    return _Rows(pipeline, store.open(*place), max_tokens, options)
