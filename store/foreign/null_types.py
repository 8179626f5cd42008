"""Columns of foreign files whose type is lost, because every value or every element is NULL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.schema.tables import Table

if TYPE_CHECKING:
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
