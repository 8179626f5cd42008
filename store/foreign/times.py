"""Times that rows of other lakes state: never later than now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.schema.tables import Table

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


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
