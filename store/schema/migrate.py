"""Migrates a lake to catalog.yaml: creates missing tables, widens others, refuses other changes.

DuckLake knows only columns and types. Keys, references, enums and checks are in the catalog that
the lake stores (table `catalogs`), and `store.schema.widening` compares them with the new one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

import duckdb

from store import __version__, describe_version
from store.errors import CatalogError
from store.ids import uuid7
from store.schema import widening
from store.schema.catalog import Catalog, Column, Table, read_definition
from store.schema.sql_text import quote_names, quote_values

AUTHOR = "store init"


@dataclass(frozen=True, kw_only=True)
class Record:
    """The newest row of a lake's table `catalogs`: the catalog that the lake follows."""

    definition: str
    version: str
    """Version of this software that stored it."""

    @property
    def schema(self) -> int:
        """Number of the schema; a newer one tells why this version cannot read the rest."""
        try:
            return int(json.loads(self.definition).get("schema", 0))
        except (ValueError, TypeError, AttributeError):  # `read` says what is wrong
            return 0

    @property
    def number(self) -> str:
        """The version without its commit."""
        return self.version.partition("+")[0]

    def describe_refusal(self, catalog: Catalog, what: str) -> CatalogError:
        """Return the error of a lake that a newer version has written."""
        return CatalogError(
            f"this lake was written by kernel-flywheel {self.number} (schema {self.schema}); this "
            f"is {__version__} (schema {catalog.schema})",
            f"Install kernel-flywheel {self.number} or newer to {what} it. This version can still "
            "read it.",
        )

    def read(self) -> Catalog:
        """Return the catalog; raises CatalogError if this version cannot read it."""
        try:
            return read_definition(self.definition, "the catalog that the lake keeps")
        except CatalogError as error:
            raise CatalogError(
                f"this version cannot read the catalog that the lake follows: {error.message}",
                f"Install kernel-flywheel {self.number} or newer, which migrated the lake.",
            ) from error


def read_record(connection: duckdb.DuckDBPyConnection) -> Record | None:
    """Return the record of the attached `lake`; None for a new lake or one of an early version."""
    try:
        row = connection.execute(
            # In the order of commits, because the clock of a host may be off.
            "SELECT definition, version FROM lake.catalogs ORDER BY rowid DESC LIMIT 1"
        ).fetchone()
    except duckdb.CatalogException:
        return None
    return None if row is None else Record(definition=str(row[0]), version=str(row[1]))


def refuse_newer(record: Record | None, catalog: Catalog, what: str = "write to") -> None:
    """Raise CatalogError if the lake has a later schema than the catalog of this version."""
    if record is not None and record.schema > catalog.schema:
        raise record.describe_refusal(catalog, what)


def migrate(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> list[str]:
    """Bring the attached writable `lake` to the catalog in one commit; call it under the lock.

    A lake whose catalog differs in descriptions alone is left as it is: two versions would change
    them in turn. The comment at the top of catalog.yaml lists the changes that are possible.
    Returns the changes, one line each. A lake of an early version, which stores no catalog, is
    compared by columns and types.

    Raises:
        CatalogError: any other change, or a newer version wrote the lake; nothing is changed then.
    """
    record = read_record(connection)
    refuse_newer(record, catalog)
    if record is not None and record.definition == catalog.definition:
        steps: list[tuple[str, str]] = []
    else:
        steps = _plan_migration(connection, record, catalog)
    if steps:
        _apply_changes(connection, steps, new_lake="table lakes" in dict(steps))
    _set_options(connection, catalog)
    return [line for line, _ in steps if line]


def _plan_migration(
    connection: duckdb.DuckDBPyConnection, record: Record | None, catalog: Catalog
) -> list[tuple[str, str]]:
    held = None if record is None else record.read()
    if held is not None and held.digest == catalog.digest:
        return []
    stored = _list_stored_columns(connection)
    written = sorted({c.type for t in catalog.tables.values() for c in t.columns.values()})
    spelled = ", ".join(f"typeof(NULL::{kind})" for kind in written)
    row = connection.execute(f"SELECT {spelled}").fetchone()
    assert row is not None
    types = dict(zip(written, row, strict=True))
    steps: list[tuple[str, str]] = []
    try:
        for table in catalog.tables.values():
            if table.name not in stored:
                steps.append((f"table {table.name}", table.ddl(f"lake.{table.name}")))
                steps += [("", _sort(table)), ("", _describe(table))]
                steps += [
                    ("", _describe_column(table, column)) for column in table.columns.values()
                ]
            else:
                steps += _widen_table(table, stored[table.name], types)
        if held is not None:
            steps += [(line, "") for line in widening.widen(connection, held, catalog)]
            for table in catalog.tables.values():
                old = held.tables.get(table.name)
                if old is not None and old.about != table.about:
                    steps.append((f"description of {table.name}", _describe(table)))
                if old is not None and old.sort != table.sort:
                    steps.append((f"order of {table.name}", _sort(table)))
    except CatalogError as error:
        if record is not None and _split_version(record.number) > _split_version(__version__):
            raise record.describe_refusal(catalog, "write to") from error
        if record is None or held is None or held.schema == catalog.schema:
            raise
        # No release made this lake: somebody had changed catalog.yaml.
        raise CatalogError(
            f"the lake has a catalog that no version leads on from: {error.message}",
            f"Read it with this version, and write to it with kernel-flywheel {record.number} and "
            "the catalog.yaml that it has followed until now.",
        ) from error
    if "catalogs" in catalog.tables:
        values = quote_values((uuid7(), catalog.definition, describe_version()))
        insert = "INSERT INTO lake.catalogs (catalog_id, definition, version, created_at)"
        steps.append(("", f"{insert} VALUES ({values}, now())"))
    return steps


def _split_version(number: str) -> list[int]:
    return [int(part) for part in number.split(".") if part.isdigit()]


def _apply_changes(
    connection: duckdb.DuckDBPyConnection, steps: list[tuple[str, str]], *, new_lake: bool
) -> None:
    """Run the statements in one commit, which also gives a new lake its identity."""
    connection.execute("BEGIN")
    try:
        for _, statement in steps:
            if statement:
                connection.execute(statement)
        if new_lake:
            connection.execute("INSERT INTO lake.lakes VALUES (?, NULL, now())", [uuid7()])
        done = [line for line, _ in steps if line]
        connection.execute(
            "CALL lake.set_commit_message(?, ?, extra_info => ?)",
            [AUTHOR, "make the lake" if new_lake else "follow catalog.yaml", json.dumps(done)],
        )
        connection.execute("COMMIT")
    except BaseException:
        # A failed COMMIT has ended the transaction already.
        with suppress(duckdb.TransactionException):
            connection.execute("ROLLBACK")
        raise


def _widen_table(
    table: Table, stored: dict[str, tuple[str, str | None]], types: dict[str, str]
) -> list[tuple[str, str]]:
    gone = [name for name in stored if name not in table.columns and name not in table.renamed]
    if gone:
        raise CatalogError(
            f"catalog.yaml no longer has {table.name}.{gone[0]}, which this lake stores",
            "Columns are only added. Put it back; to stop using it, leave it NULL in new rows.",
        )
    steps: list[tuple[str, str]] = []
    for column in table.columns.values():
        former = column.renamed_from
        if former in stored:
            rename = f'ALTER TABLE lake.{table.name} RENAME COLUMN "{former}" TO "{column.name}"'
            steps.append((f"column {table.name}.{former} is now {column.name}", rename))
        elif column.name not in stored:
            if column.required:
                raise CatalogError(
                    f"{table.name}.{column.name} is new and required, but the table has rows",
                    "Add it without `required`: rows that are there have no value for it.",
                )
            add = f'ALTER TABLE lake.{table.name} ADD COLUMN "{column.name}" {column.type}'
            steps.append((f"column {table.name}.{column.name}", add))
            steps.append(("", _describe_column(table, column)))
            continue
        kind, comment = stored[former if former in stored else column.name]
        if kind != types[column.type]:
            raise CatalogError(
                f"{table.name}.{column.name} is {kind} in this lake and {column.type} in "
                "catalog.yaml",
                "Types never change. Add a column with another name.",
            )
        if comment != column.comment:
            steps.append(
                (f"description of {table.name}.{column.name}", _describe_column(table, column))
            )
    return steps


def _list_stored_columns(
    connection: duckdb.DuckDBPyConnection,
) -> dict[str, dict[str, tuple[str, str | None]]]:
    rows = connection.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        "WHERE database_name = 'lake' ORDER BY table_name, column_index"
    ).fetchall()
    stored: dict[str, dict[str, tuple[str, str | None]]] = {}
    for table, column, kind, comment in rows:
        stored.setdefault(table, {})[column] = (kind, comment)
    return stored


def _set_options(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """Set options of the lake that are unset, and those of its tables that differ.

    DuckLake accepts options only for committed tables, so a killed migration may have left them
    out. Therefore each opening for writing checks them again.
    """
    stored = {
        (str(option), None if scope is None else str(scope).removeprefix("main.")): str(value)
        for option, value, scope in connection.execute(
            "SELECT option_name, value, scope_entry FROM lake.options()"
        ).fetchall()
    }
    whole: dict[str, str | int | bool] = {
        "parquet_compression": "zstd",
        "parquet_compression_level": 3,
        "target_file_size": "256MB",
        "require_commit_message": True,
    }
    missing: list[tuple[str, str | None, str | int | bool]] = [
        (option, None, value) for option, value in whole.items() if (option, None) not in stored
    ]
    for table in catalog.tables.values():
        options = {
            "data_inlining_row_limit": table.inline,
            "parquet_row_group_size": table.row_group,
        }
        for option, value in options.items():
            if value is not None and stored.get((option, table.name)) != str(value):
                missing.append((option, table.name, value))
    if not missing:
        return
    # One transaction, because a commit per option would take as long as all tables together.
    connection.execute("BEGIN")
    for option, table_name, value in missing:
        scope = "" if table_name is None else f", table_name => '{table_name}'"
        connection.execute(f"CALL lake.set_option(?, ?{scope})", [option, value])
    connection.execute("COMMIT")


def _sort(table: Table) -> str:
    return f"ALTER TABLE lake.{table.name} SET SORTED BY ({quote_names(table.sort)})"


def _describe(table: Table) -> str:
    return f"COMMENT ON TABLE lake.{table.name} IS {quote_values((table.about,))}"


def _describe_column(table: Table, column: Column) -> str:
    comment = quote_values((column.comment,))
    return f'COMMENT ON COLUMN lake.{table.name}."{column.name}" IS {comment}'
