"""Parts of a view, each with its own tasks, and temporary files with the rows of their tables.

A row group of a data file has rows of many tasks, so a part that reads the data files reads nearly
all of them. Where there are many parts, the rows of a view's tables are written once into files of
their parts instead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store.bounds import measure_share
from store.lake.cache.kept_files import copy_rows, escape

if TYPE_CHECKING:
    import duckdb

PART_ROWS = 4_000_000
"""A part has about this many rows of its tables, or one task."""
WEIGHTS = {"timings": 3}
"""Rows that count more than once, because they contain lists of samples."""
DIRECT_PARTS = 48
"""Up to this many parts read the data files. Writing files of parts takes as long as reading the
data files about 50 times, if these are in the page cache."""
PARTS_AT_ONCE = 32
"""The files of up to this many parts are written at a time, to limit memory and disk space."""
SAMPLE_ROWS = 20_000
"""Rows of a table from which the size of its files is estimated."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some tasks."""

    number: int
    weight: int
    """Its rows, counted by `WEIGHTS`."""
    condition: str
    """SQL that is true for its tasks."""


@dataclass(frozen=True, kw_only=True)
class DividedView:
    """A view that can be computed from files with rows of its tables."""

    rows: Mapping[str, str]
    """SQL for the rows of each table, with the columns that the view needs."""
    build_query: Callable[[Mapping[str, str | None]], str]
    """Returns SQL for the view over other relations with these columns; None has no rows."""


class TaskParts:
    """Divides the rows of tables by tasks.

    Args:
        connection: Where the lake is attached at a snapshot.
        spill_bytes: Disk space for the files, as far as their disk has room.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, spill_bytes: int) -> None:
        self._connection = connection
        self._spill_bytes = spill_bytes
        self._counted: set[str] = set()

    def list_parts(self, view: str, tables: tuple[str, ...]) -> list[Part]:
        """Divide the tasks of a view's tables, and store the part of each task in a table."""
        counts = " UNION ALL ".join(f"FROM {self._count_rows(table)}" for table in tables)
        self._connection.execute(
            f"CREATE OR REPLACE TEMP TABLE _parts_{view} AS SELECT task_id, "
            "sum(weight)::BIGINT AS weight, "
            f"sum(sum(weight)) OVER (ORDER BY task_id NULLS FIRST)::BIGINT // {PART_ROWS} AS part "
            f"FROM ({counts}) GROUP BY task_id"
        )
        found = self._connection.execute(
            f"SELECT part, sum(weight)::BIGINT, min(task_id) FROM _parts_{view} "
            "GROUP BY part ORDER BY part"
        ).fetchall() or [(0, 0, None)]
        edges = [f"'{str(start).replace(chr(39), chr(39) * 2)}'" for *_, start in found[1:]]
        lower = ["true", *(f"task_id >= {edge}" for edge in edges)]
        upper = [*(f"task_id < {edge}" for edge in edges), "true"]
        # An attempt at a problem that is no task of the lake has none.
        upper[0] = f"({upper[0]} OR task_id IS NULL)"
        return [
            Part(number=number, weight=weight, condition=f"{low} AND {high}")
            for (number, weight, _), low, high in zip(found, lower, upper, strict=True)
        ]

    def divide(
        self, view: str, parts: list[Part], divided: DividedView, folder: Path
    ) -> Generator[str]:
        """Yield SQL for each part of a view; it can be used until the next one is asked for.

        The files of as many parts as the disk space allows are written at a time into the folder,
        up to `PARTS_AT_ONCE`.
        """
        size = self._estimate_bytes(divided, folder)
        allowed = min(measure_share(folder), self._spill_bytes)
        for group in _group_parts(parts, size, allowed):
            numbers = f"{group[0].number} AND {group[-1].number}"
            for table, rows in divided.rows.items():
                query = (
                    f"SELECT found.*, parts.part FROM ({rows}) AS found "
                    f"JOIN _parts_{view} AS parts ON parts.task_id IS NOT DISTINCT FROM "
                    f"found.task_id WHERE part BETWEEN {numbers}"
                )
                copy_rows(self._connection, query, folder / table, "PARTITION_BY (part)")
            for part in group:
                places = {table: folder / table / f"part={part.number}" for table in divided.rows}
                yield divided.build_query(
                    {
                        table: f"read_parquet('{escape(place)}/*', hive_partitioning = false)"
                        if place.exists()
                        else None
                        for table, place in places.items()
                    }
                )
                for place in places.values():
                    shutil.rmtree(place, ignore_errors=True)

    def _count_rows(self, table: str) -> str:
        """Return a temporary table with the rows and the weight of each task, made once."""
        name = f"_tasks_{table}"
        if name not in self._counted:
            self._connection.execute(
                f"CREATE TEMP TABLE {name} AS SELECT task_id, count(*) AS rows, "
                f"{WEIGHTS.get(table, 1)} * count(*) AS weight "
                f"FROM lake.main.{table} GROUP BY task_id"
            )
            self._counted.add(name)
        return name

    def _estimate_bytes(self, divided: DividedView, folder: Path) -> int:
        """Return the size of the files of all parts, from the first rows of each table."""
        size = 0
        for table, rows in divided.rows.items():
            sample = folder / f"{table}.parquet"
            copy_rows(self._connection, f"SELECT * FROM ({rows}) LIMIT {SAMPLE_ROWS}", sample)
            row = self._connection.execute(
                f"SELECT sum(rows)::BIGINT FROM {self._count_rows(table)}"
            ).fetchone()
            count = 0 if row is None else int(row[0] or 0)
            size += sample.stat().st_size * max(count, SAMPLE_ROWS) // SAMPLE_ROWS
            sample.unlink()
        return size


def _group_parts(parts: list[Part], size: int, allowed: int) -> Generator[list[Part]]:
    """Yield neighboring parts whose files fit into the space together; at least one part."""
    weight = sum(part.weight for part in parts)
    group: list[Part] = []
    for part in parts:
        too_large = sum(one.weight for one in [*group, part]) * size > allowed * weight
        if group and (too_large or len(group) == PARTS_AT_ONCE):
            yield group
            group = []
        group.append(part)
    yield group
