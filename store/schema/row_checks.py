"""Check rows in bulk against the catalog: SQL over registered Arrow, never row by row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from store.errors import RowsRejected
from store.schema.arrow_checks import is_surely_passed
from store.schema.catalog import TIME_RANGES, Catalog
from store.schema.device_names import check_device_names
from store.schema.id_checks import check_ids
from store.schema.tables import Column, Enum, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

EXAMPLES = 3
_FIRST_AND_LAST = tuple(one.replace(tzinfo=UTC) for one in (datetime.min, datetime.max))


def check_relation(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, table: Table, relation: str
) -> None:
    """Raise RowsRejected for the first rule on single rows that rows of `relation` break.

    Required values, enumerations, finite numbers and the table's own checks are counted in one
    scan. `relation` is a registered name with the table's columns.
    """
    rules = catalog.rules(table)
    if not rules:
        return
    # TRY: a row fails a check that cannot be computed for it, for example because of bad JSON.
    counts = ", ".join(
        f"count(*) FILTER (WHERE NOT coalesce(TRY({rule}), false))" for rule in rules.values()
    )
    row = connection.execute(f"SELECT {counts} FROM {relation}").fetchone()
    assert row is not None
    for (name, rule), count in zip(rules.items(), row, strict=True):
        if count:
            broken = f"NOT coalesce(TRY({rule}), false)"
            examples = _find_examples(connection, table, relation, rule, broken)
            raise RowsRejected(table.name, name, int(count), examples)


def check_rows(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, table: Table, given: pa.Table
) -> None:
    """Raise RowsRejected like `check_relation`, for rows in memory; valid rows pass quickly.

    Ids that are hashes are computed again, and names of devices are read (`device_names`).

    DuckDB takes longer to plan a rule than to evaluate it on a few rows. Therefore Arrow evaluates
    the declarations of columns and most checks, and one query evaluates the others. Only if one of
    them fails are all rules evaluated one by one.
    """
    good = all(
        _matches_declaration(catalog, table, column, given) for column in table.columns.values()
    )
    if good:
        asked = [check for check in table.checks.values() if not is_surely_passed(check, given)]
        if asked:
            together = " AND ".join(f"({check})" for check in asked)
            # DuckDB finds `given` in this frame; registering it would take as long as the query.
            row = connection.execute(
                f"SELECT coalesce(bool_and(coalesce(TRY({together}), false)), true) FROM given"
            ).fetchone()
            good = row is not None and bool(row[0])
    if not good:
        connection.register("_rows", given)
        try:
            check_relation(connection, catalog, table, "_rows")
        finally:
            connection.unregister("_rows")
    check_ids(table, given)
    check_device_names(table, given)


def _matches_declaration(catalog: Catalog, table: Table, column: Column, given: pa.Table) -> bool:
    """Return whether a column's values are there, enumerated, in range, and free of NUL.

    False may be wrong; the rules decide.
    """
    import pyarrow.compute as pc

    values = given.column(column.name)
    if values.null_count == len(values):
        return not (column.required and len(values))
    if column.required and values.null_count:
        return False
    if column.enum is not None and not _matches_enum(catalog.enums[column.enum], column, given):
        return False
    flat: Any = values
    if column.type.endswith("[]"):
        flat = pc.list_flatten(values)
        if flat.null_count and not column.null_elements:
            return False
    if column.type.removesuffix("[]") in ("DOUBLE", "FLOAT"):
        return pc.all(pc.is_finite(flat)).as_py() is not False
    if column.type in TIME_RANGES:
        return _is_in_range(values)
    if "VARCHAR" in column.type and (column.type != "VARCHAR" or table.is_looked_up(column)):
        return not any(_has_nul(chunk) for chunk in flat.chunks)
    return True


def _matches_enum(allowed: Enum, column: Column, given: pa.Table) -> bool:
    """Return whether all values are of the enumeration, and allowed by its deciding column."""
    import pyarrow.compute as pc

    if not set(pc.unique(given.column(column.name)).to_pylist()) <= {None, *allowed.values}:
        return False
    if allowed.by is None:
        return True
    return all(
        value is None or by is None or value in allowed.allowed.get(str(by), allowed.values)
        for value, by in _list_pairs(given.column(column.name), given.column(allowed.by))
    )


def _list_pairs(left: pa.ChunkedArray, right: pa.ChunkedArray) -> set[tuple[Any, Any]]:
    """Return the distinct pairs of two columns with few distinct values."""
    import numpy as np

    # Grouping in Arrow takes milliseconds for a single row.
    sides = [side.combine_chunks().dictionary_encode("encode") for side in (left, right)]
    codes, others = (side.indices.to_numpy() for side in sides)
    values, by = (side.dictionary.to_pylist() for side in sides)
    pairs = np.unique(codes.astype(np.int64) * len(by) + others)
    return {(values[pair // len(by)], by[pair % len(by)]) for pair in pairs.tolist()}


def _is_in_range(times: pa.ChunkedArray) -> bool:
    """Return whether times or days are in the years that Python can represent; not all are NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    first, last = (date.min, date.max) if pa.types.is_date(times.type) else _FIRST_AND_LAST
    earliest, latest = pa.scalar(first, times.type), pa.scalar(last, times.type)
    extremes: Any = pc.min_max(times)
    return (
        pc.greater_equal(extremes["min"], earliest).as_py() is True
        and pc.less_equal(extremes["max"], latest).as_py() is True
    )


def _has_nul(values: Any) -> bool:
    """Return whether texts contain a NUL byte, inside lists and structs too."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_struct(values.type):
        return any(_has_nul(part) for part in values.flatten())
    if pa.types.is_list(values.type):
        return _has_nul(values.flatten())
    if not pa.types.is_string(values.type):
        return False
    _, places, texts = values.buffers()
    if texts is None or not len(values):
        return False
    ends = np.frombuffer(places, np.int32)
    start, end = ends[values.offset], ends[values.offset + len(values)]
    return not np.frombuffer(texts, np.uint8)[start:end].all()


def check_keys(table: Table, rows: pa.Table) -> None:
    """Raise RowsRejected if rows repeat a key and the table forbids it."""
    if has_distinct_keys(table, rows):
        return
    import pyarrow.compute as pc

    keys = rows.select(list(table.key))
    groups = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    repeated = groups.filter(pc.field("count_all") > 1).sort_by(
        [(name, "ascending") for name in table.key]
    )
    shown = list(zip(*(repeated.column(name).to_pylist() for name in table.key), strict=True))
    raise RowsRejected(
        table.name,
        describe_key(table),
        keys.num_rows - groups.num_rows,
        describe_rows(table.key, shown[:EXAMPLES]),
    )


def has_distinct_keys(table: Table, rows: pa.Table) -> bool:
    """Return whether no key repeats, or the table allows it."""
    if table.duplicates == "skip" or is_ascending(table, rows):
        return True
    return _count_distinct(rows.select(list(table.key))) == rows.num_rows


def _count_distinct(keys: pa.Table) -> int:
    import pyarrow.compute as pc

    if keys.num_columns == 1:
        return int(pc.count_distinct(keys.column(0), mode="all").as_py())
    return len(set(zip(*(column.to_pylist() for column in keys.columns), strict=True)))


def is_ascending(table: Table, rows: pa.Table) -> bool:
    """Return whether keys are clearly unique: at most one row, or one ascending column.

    UUIDv7 ids ascend. Grouping many keys takes longer than inserting them.
    """
    import pyarrow.compute as pc

    if rows.num_rows < 2:
        return True
    name, *others = table.key
    if others:
        return False
    key = rows.column(name)
    return pc.all(pc.less(key[:-1], key[1:]), skip_nulls=False).as_py() is True


@dataclass(frozen=True)
class Reference:
    """One reference of a batch: values that must be keys of the target."""

    table: Table
    column: Column
    target: Table
    values: str
    """SQL that yields the distinct values as one column named v."""


def list_references(catalog: Catalog, table: Table, relation: str) -> list[Reference]:
    """Return the references of the rows of `relation`, lists element by element."""
    found: list[Reference] = []
    for column, target in catalog.references(table):
        value = f'"{column.name}"'
        if column.type.endswith("[]"):
            values = f"SELECT DISTINCT unnest({value}) AS v FROM {relation}"
        else:
            values = f"SELECT DISTINCT {value} AS v FROM {relation}"
        found.append(
            Reference(table, column, target, f"SELECT v FROM ({values}) WHERE v IS NOT NULL")
        )
    return found


def describe_reference(column: Column, target: Table) -> str:
    """Return the sentence that names a reference."""
    return f"{column.name} is a {target.key[0]} of {target.name}"


def describe_key(table: Table) -> str:
    """Return the sentence that names a key."""
    return f"({', '.join(table.key)}) identifies one row"


def describe_rows(names: tuple[str, ...], rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows as short texts for an error message."""
    return [
        ", ".join(f"{name}={str(value)!a:.90}" for name, value in zip(names, row, strict=True))
        for row in rows
    ]


def _find_examples(
    connection: duckdb.DuckDBPyConnection, table: Table, relation: str, rule: str, broken: str
) -> list[str]:
    mentioned = [name for name in table.columns if re.search(rf"\b{name}\b", rule)]
    names = tuple(dict.fromkeys([*table.key, *mentioned]))
    # Python cannot represent every time.
    values = ", ".join(
        f'"{name}"::VARCHAR' if table.columns[name].type in TIME_RANGES else f'"{name}"'
        for name in names
    )
    rows = connection.execute(
        f"SELECT {values} FROM {relation} WHERE {broken} LIMIT {EXAMPLES}"
    ).fetchall()
    return describe_rows(names, rows)
