"""Columns of foreign files: types that are lost because every value is NULL, and future times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.schema.tables import Table

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


def cast_null_types(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows in which a column of type null, or of lists of it, has the type of the catalog.

    Arrow writes such columns where it sees no value to take a type from. Neither a comparison with
    a stored column nor a cast of what DuckDB returns for it is possible. A list where the catalog
    has none is left unchanged; it is rejected later, when rows are conformed to the schema.
    """
    import pyarrow as pa

    for place, name in enumerate(rows.column_names):
        if name not in table.columns or not _has_null_type(rows.schema.field(place).type):
            continue
        try:
            typed = rows.column(place).cast(table.arrow_schema.field(name).type)
        except pa.ArrowException:
            continue
        rows = rows.set_column(place, name, typed)
    return rows


def _has_null_type(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.types.is_null(kind.value_type)
    return pa.types.is_null(kind)


def clamp_times(table: Table, rows: pa.Table, now: datetime) -> pa.Table:
    """Return rows with every TIMESTAMPTZ after `now` replaced by it; NULL stays NULL.

    Often the row with the latest time decides, so a row with a time in the future would always
    decide. A column without times is left unchanged; it is rejected later, when rows are conformed
    to the schema.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, name in enumerate(rows.column_names):
        column = table.columns.get(name)
        if column is None or column.type != "TIMESTAMPTZ":
            continue
        kind = pa.timestamp("us", tz="UTC")
        try:
            times = rows.column(place).cast(kind)
        except pa.ArrowException:
            continue
        latest = pa.scalar(now, kind)
        if pc.any(pc.greater(times, latest)).as_py():
            clamped = pc.if_else(pc.greater(times, latest), latest, times)
            rows = rows.set_column(place, name, clamped)
    return rows
