"""Arrow rows as Python dictionaries, without the quarter of a second that pandas takes to load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from store.bounds import read_bounds

if TYPE_CHECKING:
    import pyarrow as pa


def list_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows that `to_pylist` returns, whatever times they contain.

    PyArrow imports pandas for a time with a zone, so this function adds the zone UTC itself. A
    value with a time that Python cannot represent, such as infinity or the year 20000, becomes its
    text in DuckDB.
    """
    import pyarrow as pa

    utc = ZoneInfo("UTC")
    zoned: dict[str, bool] = {}
    plain = table
    for place, field in enumerate(table.schema):
        kind = field.type
        zoned[field.name] = pa.types.is_timestamp(kind) and kind.tz == utc.key and kind.unit != "ns"
        if zoned[field.name]:
            times: Any = table.column(place).cast(pa.timestamp(kind.unit))
            plain = plain.set_column(place, field.name, times)
    try:
        rows: list[dict[str, Any]] = plain.to_pylist()
    except (OverflowError, ValueError):
        columns = [_list_values(table.column(place)) for place in range(table.num_columns)]
        names = table.schema.names
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    for name in (name for name, is_zoned in zoned.items() if is_zoned):
        for row in rows:
            row[name] = row[name] and row[name].replace(tzinfo=utc)
    return rows


def _list_values(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        pass
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as connection:
        read_bounds(None).apply(connection, None)
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("spelled", pa.Table.from_arrays([column], ["value"]))
        rows = connection.execute("SELECT value::VARCHAR FROM spelled").fetchall()
    texts = [row[0] for row in rows]
    values = list[Any]()
    for value, text in zip(column, texts, strict=True):
        try:
            values.append(value.as_py())
        except (OverflowError, ValueError):
            values.append(text)
    return values
