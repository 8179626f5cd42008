"""Reads the tables of a lake for exports, without the private columns of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.errors import UnknownName
from store.schema.sql_text import quote_names

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.reader import Lake

BATCH_ROWS = 10_000


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Options of exporters that write tables."""

    tables: tuple[str, ...] = ()
    """Tables and views to write (default: every table)."""


def stream_tables(lake: Lake, config: Tables) -> Iterator[tuple[str, pa.RecordBatchReader]]:
    """Yield each table that has rows, in the order of its key, as a stream of batches.

    Private columns are left out. Read each stream to its end before the next one.

    Raises:
        UnknownName: unknown table or view.
    """
    known = {**lake.catalog.tables, **dict.fromkeys(lake.views())}
    for name in config.tables:
        if name not in known:
            raise UnknownName.among("table or view", name, list(known))
    for name in config.tables or tuple(lake.catalog.tables):
        table = lake.catalog.tables.get(name)
        shown, order = "*", ""
        if table is not None:
            kept = [one.name for one in table.columns.values() if one.sensitivity != "private"]
            shown, order = quote_names(tuple(kept)), f" ORDER BY {quote_names(table.key)}"
        if lake.run(f"SELECT 1 AS one FROM {name} LIMIT 1").one() is not None:
            yield name, lake.run(f"SELECT {shown} FROM {name}{order}").reader(BATCH_ROWS)
