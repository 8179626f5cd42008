"""Check rows in bulk against the catalog: SQL over Arrow, never row by row, except for ids.

catalog.yaml says per table which columns an id is the hash of. The hashes are those of `store.ids`,
computed batch by batch. hashlib and json's encoder are several times as fast as DuckDB's sha256,
and this way each id has a single definition.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import duckdb
import pyarrow as pa

from store.errors import RowsRejected
from store.ids import compute_row_id
from store.schema.catalog import TIME_RANGES, Catalog, Column, Table
from store.schema.sql_text import fetch_row

EXAMPLES = 3
BATCH_ROWS = 10_000


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
    found = fetch_row(connection, f"SELECT {counts} FROM {relation}")
    for (name, rule), count in zip(rules.items(), found, strict=True):
        if count:
            broken = f"NOT coalesce(TRY({rule}), false)"
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
            examples = describe_rows(names, rows)
            raise RowsRejected(table.name, name, int(count), examples)


@dataclass
class Export:
    """Rows as DuckDB reads them, which can be replaced and let go."""

    rows: pa.Table | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a stream of the rows; DuckDB calls this whenever it reads them."""
        assert self.rows is not None
        return self.rows.__arrow_c_stream__(requested_schema)


class Stage:
    """Lets a connection read the rows in memory of each table of a catalog, under one name.

    DuckDB would keep a registered Arrow table in memory until the transaction ends. It would find
    the variable of a table too, but an interrupt that arrives in its search would be lost.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
        self.connection = connection
        self.catalog = catalog
        self._exports: dict[str, Export] = {}
        self._prepared: set[str] = set()

    def register(self, tables: Iterable[str]) -> None:
        """Register the names of tables; call this outside of a transaction, which might fail."""
        for name in tables:
            if name not in self._exports:
                export = Export(self.catalog.table(name).open_schema.empty_table())
                self.connection.register(f"staged_{name}", export)
                self._exports[name] = export

    @contextmanager
    def hold(self, table: Table, rows: pa.Table) -> Generator[str]:
        """Yield the name under which the connection reads some rows of a table."""
        export = self._exports[table.name]
        export.rows = rows
        try:
            yield f"staged_{table.name}"
        finally:
            export.rows = None

    def check_rows(self, table: Table, rows: pa.Table) -> None:
        """Raise RowsRejected like `check_relation`; call this outside of a transaction.

        Ids that are hashes are computed again.
        """
        self.register([table.name])
        rules = self.catalog.rules(table)
        with self.hold(table, rows) as name:
            if table.name not in self._prepared:
                # For a few rows, DuckDB takes longer to plan the rules than to evaluate them. Only
                # if a row fails this one expression are the rules counted one by one.
                whole = " AND ".join(f"({rule})" for rule in rules.values()) or "true"
                self.connection.execute(
                    f"PREPARE check_{table.name} AS "
                    f"SELECT bool_and(coalesce(TRY({whole}), false)) FROM {name}"
                )
                self._prepared.add(table.name)
            if fetch_row(self.connection, f"EXECUTE check_{table.name}") == (False,):
                check_relation(self.connection, self.catalog, table, name)
        check_ids(table, rows)


def make_key_texts(table: Table, rows: pa.Table) -> pa.Array:
    """Return the key of each row as one text, in which a NUL separates the columns."""
    import pyarrow.compute as pc

    # No key contains a NUL (`Catalog.rules`).
    parts: Any = [rows.column(name).cast(pa.string()) for name in table.key]
    joined: Any = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "\0")
    return joined.combine_chunks()


def describe_keys(table: Table, keys: Iterable[str]) -> list[str]:
    """Return the first keys, as `make_key_texts` returns them, as texts for an error message."""
    first = islice(sorted(set(keys)), EXAMPLES)
    return describe_rows(table.key, [tuple(key.split("\0")) for key in first])


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


def list_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that are needed to check the ids of a table, the id first.

    None are where ids are not the hash of a row.
    """
    if table.id is None or table.id.form is None:
        return ()
    return (*table.key, *table.id.of, *filter(None, [table.id.unless]))


def describe_id(table: Table) -> str:
    """Return the sentence that names what an id is."""
    hashed = ", ".join(table.id.of) if table.id is not None else ""
    return f"{table.key[0]} is the hash of {hashed}"


def find_wrong_ids(table: Table, rows: pa.Table) -> list[str]:
    """Return the ids that are not the hash of their row; a column that is missing is NULL."""
    made = table.id
    if made is None or made.form is None:
        return []
    wrong: list[str] = []
    for start in range(0, rows.num_rows, BATCH_ROWS):
        batch = rows.slice(start, BATCH_ROWS)
        stated = batch.column(table.key[0]).to_pylist()
        values = zip(*(_read_values(batch, name) for name in made.of), strict=False)
        exempt = repeat(None) if made.unless is None else _read_values(batch, made.unless)
        wrong += [
            str(one)
            for one, of, excuse in zip(stated, values, exempt, strict=False)
            if excuse is None and one != compute_row_id(made.form, made.kind, of)
        ]
    return wrong


def check_ids(table: Table, rows: pa.Table) -> None:
    """Raise RowsRejected if an id is not the hash of its row."""
    wrong = find_wrong_ids(table, rows)
    if wrong:
        examples = [f"{table.key[0]}={one!a:.90}" for one in wrong[:EXAMPLES]]
        raise RowsRejected(table.name, describe_id(table), len(wrong), examples)


def _read_values(rows: pa.Table, name: str) -> Any:
    if name not in rows.column_names:
        return repeat(None)
    column = rows.column(name)
    return repeat(None) if column.null_count == len(column) else column.to_pylist()
