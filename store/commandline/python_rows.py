"""Arrow rows as Python dictionaries, without the quarter of a second that pandas takes to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import pyarrow as pa


def list_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows that `to_pylist` returns.

    PyArrow imports pandas for a time with a zone, so this function adds the zone UTC itself.
    """
    import pyarrow as pa

    utc = ZoneInfo("UTC")
    zoned: dict[str, bool] = {}
    for place, field in enumerate(table.schema):
        kind = field.type
        zoned[field.name] = pa.types.is_timestamp(kind) and kind.tz == utc.key and kind.unit != "ns"
        if zoned[field.name]:
            plain: Any = table.column(place).cast(pa.timestamp(kind.unit))
            table = table.set_column(place, field.name, plain)
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in (name for name, is_zoned in zoned.items() if is_zoned):
        for row in rows:
            row[name] = row[name] and row[name].replace(tzinfo=utc)
    return rows
