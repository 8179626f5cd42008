"""Migrates a lake to catalog.yaml: creates missing tables, widens others, refuses other changes.

DuckLake knows only columns and types. Keys, references, enums and checks are in the catalog that
the lake stores (table `catalogs`), which is compared with the new one. Every row that was stored,
spooled or published under the old catalog must be valid under the new one, with the same meaning:
names, keys, rules of ids, types, units and references stay. Values may be added, and NULL where a
value was required.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import duckdb
import msgspec
import pyarrow as pa

from store import __version__, describe_version
from store.errors import CatalogError
from store.ids import uuid7
from store.schema import row_checks
from store.schema.catalog import SENSITIVITIES, Catalog, Column, Table, read_definition
from store.schema.sql_text import fetch_row, quote_names, quote_values

AUTHOR = "store init"
_ANOTHER = "Put it back. For another meaning, add a column with another name."


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
    lines = [line for line, _ in steps if line]
    if steps:
        new_lake = "table lakes" in lines
        connection.execute("BEGIN")
        try:
            for statement in filter(None, (statement for _, statement in steps)):
                connection.execute(statement)
            if new_lake:
                connection.execute("INSERT INTO lake.lakes VALUES (?, NULL, now())", [uuid7()])
            connection.execute(
                "CALL lake.set_commit_message(?, ?, extra_info => ?)",
                [AUTHOR, "make the lake" if new_lake else "follow catalog.yaml", json.dumps(lines)],
            )
            connection.execute("COMMIT")
        except BaseException:
            # A failed COMMIT has ended the transaction already.
            with suppress(duckdb.TransactionException):
                connection.execute("ROLLBACK")
            raise
    # Options of the lake that are unset, and those of its tables that differ. DuckLake accepts
    # options only for committed tables, so a killed migration may have left them out: therefore
    # each opening for writing checks them again.
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
    if missing:
        # One transaction, because a commit per option would take as long as all tables together.
        connection.execute("BEGIN")
        for option, table_name, value in missing:
            scope = "" if table_name is None else f", table_name => '{table_name}'"
            connection.execute(f"CALL lake.set_option(?, ?{scope})", [option, value])
        connection.execute("COMMIT")
    return lines


def _plan_migration(
    connection: duckdb.DuckDBPyConnection, record: Record | None, catalog: Catalog
) -> list[tuple[str, str]]:
    held = None if record is None else record.read()
    if held is not None and held.digest == catalog.digest:
        return []
    stored: dict[str, dict[str, tuple[str, str | None]]] = {}
    for table, column, kind, comment in connection.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        "WHERE database_name = 'lake' ORDER BY table_name, column_index"
    ).fetchall():
        stored.setdefault(table, {})[column] = (kind, comment)
    written = sorted({c.type for t in catalog.tables.values() for c in t.columns.values()})
    spelled = ", ".join(f"typeof(NULL::{kind})" for kind in written)
    types = dict(zip(written, fetch_row(connection, f"SELECT {spelled}"), strict=True))
    keywords = connection.execute(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category != 'unreserved'"
    ).fetchall()
    words = {word for (word,) in keywords}
    steps: list[tuple[str, str]] = []
    try:
        for table in catalog.tables.values():
            if table.name not in stored:
                if table.name.lower() in words or not table.name.isidentifier():
                    raise CatalogError(
                        f"{table.name!a:.80} cannot be the name of a table, which SQL has unquoted",
                        "Choose a name of letters, digits and _ that is no word of SQL.",
                    )
                steps.append((f"table {table.name}", table.ddl(f"lake.{table.name}")))
                steps += [("", _sort(table)), ("", _describe(table))]
                steps += [
                    ("", _describe_column(table, column)) for column in table.columns.values()
                ]
            else:
                steps += _widen_table(table, stored[table.name], types)
        if held is not None:
            steps += [(line, "") for line in widen(connection, held, catalog)]
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


def _sort(table: Table) -> str:
    return f"ALTER TABLE lake.{table.name} SET SORTED BY ({quote_names(table.sort)})"


def _describe(table: Table) -> str:
    return f"COMMENT ON TABLE lake.{table.name} IS {quote_values((table.about,))}"


def _describe_column(table: Table, column: Column) -> str:
    comment = quote_values((column.comment,))
    return f'COMMENT ON COLUMN lake.{table.name}."{column.name}" IS {comment}'


def widen(connection: duckdb.DuckDBPyConnection, held: Catalog, wanted: Catalog) -> list[str]:
    """Return the changes from the catalog of a lake to the wanted one, one line each.

    Under a later schema, a check or a rule of ids may be new if all rows of the attached `lake`
    pass it. Columns that are new, gone or of another type are compared with the lake itself.

    Raises CatalogError if a change is not a widening; the message names table, column and change.
    """
    lines: dict[str, None] = {}
    is_later = wanted.schema > held.schema
    for old in held.tables.values():
        new = wanted.tables.get(old.name)
        if new is None:
            raise CatalogError(
                f"catalog.yaml no longer has the table {old.name}, which this lake stores",
                "Put it back.",
            )
        # By the names of the wanted catalog; each column itself has the name in the lake.
        columns = {new.renamed.get(name, name): column for name, column in old.columns.items()}
        old = msgspec.structs.replace(old, columns=columns)
        _check_table(connection, old, new, is_later=is_later)
        _check_checks(connection, old, new, is_later=is_later)
        for name, column in columns.items():
            changed = new.columns[name]
            _check_column(old, column, changed)
            place = f"{old.name}.{column.name}"
            if column.required and not changed.required:
                lines[f"NULL in {place}"] = None
            if changed.null_elements and not column.null_elements:
                lines[f"NULL elements in {place}"] = None
            if column.sensitivity != changed.sensitivity:
                lines[f"sensitivity {changed.sensitivity} of {place}"] = None
            lines |= dict.fromkeys(_widen_enum(held, wanted, old, column, changed))
    return list(lines)


def _check_table(
    connection: duckdb.DuckDBPyConnection, old: Table, new: Table, *, is_later: bool
) -> None:
    if old.key != new.key:
        raise CatalogError(
            f"the key of {old.name} is ({', '.join(old.key)}) in this lake and "
            f"({', '.join(new.key)}) in catalog.yaml",
            "Keys never change: rows are stored under the old one. Put it back, or add a table "
            "with another name.",
        )
    if old.duplicates != new.duplicates:
        raise CatalogError(
            f"a second row under a key of {old.name} is `{old.duplicates}` in this lake and "
            f"`{new.duplicates}` in catalog.yaml",
            "`duplicates` never changes. Put it back, or add a table with another name.",
        )
    before, after = _describe_id(old), _describe_id(new)
    if before == after:
        return
    is_new_rule = is_later and old.id is None
    if is_new_rule:  # which the stored ids may follow already
        names = [name for name in row_checks.list_columns(new) if name in old.columns]
        answer = connection.execute(_select_stored(old, [new.columns[name] for name in names]))
        is_new_rule = not any(
            row_checks.find_wrong_ids(new, pa.Table.from_batches([batch]))
            for batch in answer.to_arrow_reader(row_checks.BATCH_ROWS)
        )
    if not is_new_rule:
        raise CatalogError(
            f"the id of {old.name} is {before} in this lake and {after} in catalog.yaml",
            "Rules of ids never change: stored rows have ids by the old one. Put it back, or add a "
            "table with another name.",
        )


def _describe_id(table: Table) -> str:
    """Return the rule of an id in words, which differ for different rules.

    Why the store cannot compute an id is a description, and may change.
    """
    rule = table.id
    if rule is None or rule.form is None:
        return "not computed from the row"
    kind = "" if rule.kind is None else f" and the word {rule.kind}"
    exempt = "" if rule.unless is None else f" (unless {rule.unless} has a value)"
    return f"the {rule.form} hash of {', '.join(rule.of)}{kind}{exempt}"


def _check_column(table: Table, old: Column, new: Column) -> None:
    place = f"{table.name}.{old.name}"
    if old.references != new.references:
        raise CatalogError(
            f"{place} refers to {old.references or 'no table'} in this lake and to "
            f"{new.references or 'no table'} in catalog.yaml",
            f"References never change. {_ANOTHER}",
        )
    if old.unit != new.unit:
        raise CatalogError(
            f"the unit of {place} is {old.unit or 'none'} in this lake and "
            f"{new.unit or 'none'} in catalog.yaml",
            f"Units never change: stored numbers have the old one. {_ANOTHER}",
        )
    if new.required and not old.required:
        raise CatalogError(
            f"{place} is required in catalog.yaml and may be NULL in this lake",
            "Remove `required`: stored rows may have no value for it.",
        )
    if old.null_elements and not new.null_elements:
        raise CatalogError(
            f"elements of {place} may be NULL in this lake and may not in catalog.yaml",
            "Put `null_elements` back: stored lists may have such elements.",
        )
    if SENSITIVITIES.index(new.sensitivity) < SENSITIVITIES.index(old.sensitivity):
        raise CatalogError(
            f"{place} is {old.sensitivity} in this lake and {new.sensitivity} in catalog.yaml",
            "A sensitivity only gets stricter: rows were stored under the old one. Put it back, or "
            "add a column with another name.",
        )


def _check_checks(
    connection: duckdb.DuckDBPyConnection, old: Table, new: Table, *, is_later: bool
) -> None:
    """Compare checks by their SQL; names only appear in error messages."""
    before = {_normalize_check(check) for check in old.checks.values()}
    after = {_normalize_check(check) for check in new.checks.values()}
    for name, check in old.checks.items():
        if _normalize_check(check) not in after:
            now = f"`{new.checks[name]}`" if name in new.checks else "no such check"
            raise CatalogError(
                f'the check "{name}" of {old.name} is `{check}` in this lake and {now} in '
                "catalog.yaml",
                "Checks never change: readers rely on them. Put it back.",
            )
    nulls = ", ".join(
        f'NULL::{column.type} AS "{column.name}"'
        for column in new.columns.values()
        if column.name not in old.columns
    )
    without_rows = f"(SELECT {nulls or 'NULL'})"
    stored = f"({_select_stored(old, new.columns.values())})"
    for name, check in new.checks.items():
        if (
            _normalize_check(check) not in before
            and not _holds(connection, check, without_rows)
            and not (is_later and _holds(connection, check, stored))
        ):
            raise CatalogError(
                f'the check "{name}" of {old.name} is new, and stored rows may break it: `{check}`',
                "Check new columns alone, and let it hold where they are NULL, or leave it out.",
            )


def _select_stored(old: Table, columns: Iterable[Column]) -> str:
    """Return SQL for some columns of the wanted catalog, read from the lake as it is."""
    names = {column.name for column in old.columns.values()}
    return f"SELECT {', '.join(one.build_sql(names) for one in columns)} FROM lake.{old.name}"


def _holds(connection: duckdb.DuckDBPyConnection, check: str, rows: str) -> bool:
    try:
        whole = f"SELECT coalesce(bool_and(coalesce(TRY({check}), false)), true) FROM {rows}"
        return fetch_row(connection, whole)[0] is True
    except duckdb.Error:
        return False


def _widen_enum(
    held: Catalog, wanted: Catalog, table: Table, old: Column, new: Column
) -> Iterator[str]:
    """Yield the values that a column newly accepts; refuse to remove values."""
    place = f"{table.name}.{old.name}"
    if old.enum is None or new.enum is None:
        if old.enum is not new.enum:
            before, after = (f"enum {one.enum}" if one.enum else "any value" for one in (old, new))
            raise CatalogError(
                f"{place} is of {before} in this lake and of {after} in catalog.yaml",
                f"A column neither gains nor loses its enum. {_ANOTHER}",
            )
        return
    before, after = held.enums[old.enum], wanted.enums[new.enum]
    gone = [value for value in before.values if value not in after.values]
    if gone:
        raise CatalogError(
            f"{place} may no longer be {', '.join(gone)}, which rows of this lake may hold",
            "Values of an enum are only added. Put it back.",
        )
    if before.by != after.by:
        raise CatalogError(
            f"which values {place} may have goes by {before.by or 'no column'} in this lake and by "
            f"{after.by or 'no column'} in catalog.yaml",
            "`by` never changes. Put it back.",
        )
    # The values of the deciding column that stored rows may have and that an enum names.
    deciding = list(dict.fromkeys([*before.allowed, *after.allowed])) if before.by else []
    column = table.columns.get(before.by or "")
    if column is not None and column.enum is not None:
        deciding = [value for value in held.enums[column.enum].values if value in deciding]
    for value in deciding:
        old_values, new_values = (one.allowed.get(value, one.values) for one in (before, after))
        lost = [one for one in old_values if one not in new_values]
        if lost:
            raise CatalogError(
                f"{place} may no longer be {', '.join(lost)} where {before.by} is {value}",
                "Values of an enum are only added. Put it back.",
            )
        for one in new_values:
            if one not in old_values:
                yield f"value {one} of {place} where {before.by} is {value}"
    for value in after.values:
        if value not in before.values:
            yield f"value {value} of {place}"


def _normalize_check(check: str) -> str:
    return " ".join(check.split())
