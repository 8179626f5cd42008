"""Bundles: rows that are stored together, converted to the schema of the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from store.errors import FlywheelError, RowsRejected
from store.schema.catalog import Catalog, Table

if TYPE_CHECKING:
    import pyarrow as pa

Rows: TypeAlias = "pa.Table | Sequence[Mapping[str, Any]]"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Rows of several tables that are stored together or not at all."""

    bundle_id: str
    """Identity by which a retry is recognized."""
    message: str
    """A few words about the rows."""
    tables: dict[str, Any] = field(default_factory=dict[str, Any])
    """Table name to rows: an Arrow table, or a list of mappings."""
    author: str = ""
    """Command or member that wrote it; filled in by the writer."""

    def __post_init__(self) -> None:
        """Refuse text that DuckLake cannot write into its catalog."""
        for word in (self.bundle_id, self.message, self.author):
            if "\0" in word or word.encode(errors="replace").decode() != word:
                raise FlywheelError(
                    f"{ascii(word)[:90]} cannot be a bundle's id, message or author",
                    "Leave out NUL characters and lone surrogates.",
                )


def conform(table: Table, rows: Rows) -> pa.Table:
    """Return rows as an Arrow table of the catalog's schema.

    Missing columns become NULL, a missing creation time becomes now, and columns with a former
    name get the catalog's. Raises RowsRejected for an unknown column, a value that does not fit
    its type, or text that is not UTF-8.
    """
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        if rows.schema.equals(table.open_schema) and is_whole(rows):
            return rows
        columns: dict[str, Any] = {name: rows.column(name) for name in rows.column_names}
        count = rows.num_rows
    else:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
        count = len(rows) if names else 0
    for former, name in table.renamed.items():
        if former in columns and name not in columns:
            columns[name] = columns.pop(former)
    unknown = [name for name in columns if name not in table.columns]
    if unknown:
        rule = f"columns are {', '.join(table.columns)}"
        if not isinstance(rows, pa.Table):
            count = sum(unknown[0] in row for row in rows)
        raise RowsRejected(table.name, rule, count, [f"unknown column {unknown[0]}"])
    arrays: list[pa.ChunkedArray | pa.Array] = []
    for arrow_field in table.arrow_schema:
        if arrow_field.name in columns:
            arrays.append(_cast(table, columns[arrow_field.name], arrow_field))
        elif arrow_field.name == table.time_column:
            now = datetime.now(UTC)
            arrays.append(pa.repeat(pa.scalar(now, arrow_field.type), count))
        else:
            arrays.append(pa.nulls(count, arrow_field.type))
    # The rules find NULLs in required columns, and can name the rows.
    return pa.Table.from_arrays(arrays, schema=table.open_schema)


def fit_schema(table: Table, rows: Rows) -> pa.Table:
    """Return rows like `conform`, without testing values that have the types of the schema."""
    import pyarrow as pa

    if isinstance(rows, pa.Table) and rows.schema.equals(table.open_schema):
        return rows
    return conform(table, rows)


def is_whole(rows: pa.Table) -> bool:
    """Return whether the values of a table are valid Arrow data, such as UTF-8 in its texts."""
    import pyarrow as pa

    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _parse_time(value: object, kind: pa.DataType) -> object:
    """Parse a time in ISO format, as in JSON; other values stay unchanged."""
    import pyarrow as pa

    if not isinstance(value, str) or not pa.types.is_timestamp(kind):
        return value
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _cast(
    table: Table, column: pa.ChunkedArray | list[Any], arrow_field: pa.Field
) -> pa.ChunkedArray | pa.Array:
    import pyarrow as pa

    kind = table.columns[arrow_field.name].type
    rule = f"{arrow_field.name} is {kind}" + (", valid UTF-8" if "VARCHAR" in kind else "")
    wanted = arrow_field.type
    kinds = ("null", "other", _name_kind(wanted))
    if not isinstance(column, list) and _name_kind(column.type) not in kinds:
        examples = [f"the column given is {column.type}"]
        raise RowsRejected(table.name, rule, len(column), examples)
    try:
        if isinstance(column, list):
            return pa.array([_parse_time(value, wanted) for value in column], wanted)
        column.validate(full=True)
        return column if column.type == wanted else column.cast(wanted)
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError) as error:
        bad = [value for value in column if not _fits(value, wanted)]
        examples = [_format_value(value) for value in bad[:3]] or [str(error)[:200]]
        raise RowsRejected(table.name, rule, len(bad) or len(column), examples) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        if isinstance(value, pa.Scalar):
            # Invalid UTF-8 shows only in the Python value.
            value.as_py()
            value.cast(kind)
        else:
            pa.array([_parse_time(value, kind)], type=kind)
    except (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError):
        return False
    return True


def _name_kind(kind: pa.DataType) -> str:
    """Name the family of a type, because Arrow would convert between text and numbers."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _name_kind(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = _name_kind(kind.value_type)
        return "null" if inner == "null" else f"list of {inner}"
    families = {
        "null": [types.is_null],
        "text": [types.is_string, types.is_large_string, types.is_string_view],
        "truth": [types.is_boolean],
        "number": [types.is_integer, types.is_floating, types.is_decimal],
        "time": [types.is_timestamp, types.is_date],
    }
    fitting = (name for name, tests in families.items() if any(test(kind) for test in tests))
    return next(fitting, "other")


def _format_value(value: Any) -> str:
    import pyarrow as pa

    try:
        return ascii(value.as_py() if isinstance(value, pa.Scalar) else value)[:120]
    except UnicodeDecodeError as error:
        return ascii(error.object)[:120]


def hash_content(author: str, tables: Mapping[str, pa.Table]) -> str:
    """Return the sha256 of a bundle's rows and author."""
    digest = hashlib.sha256(author.encode())
    for name in sorted(tables):
        digest.update(f"\0{name}\0".encode())
        digest.update(serialize(tables[name]))
    return digest.hexdigest()


def select_given(
    catalog: Catalog, tables: Mapping[str, Rows], checked: Mapping[str, pa.Table]
) -> dict[str, pa.Table]:
    """Return rows without the columns that the store filled in; a retry fills them in again."""
    given: dict[str, pa.Table] = {}
    for name, rows in tables.items():
        made, renamed = checked[name], catalog.table(name).renamed
        columns = set[str]().union(*rows) if isinstance(rows, Sequence) else set(rows.column_names)
        columns |= {renamed[former] for former in renamed.keys() & columns}
        given[name] = made.select([column for column in made.column_names if column in columns])
    return given


def serialize(rows: pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()
