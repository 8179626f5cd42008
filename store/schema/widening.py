"""Check that changes of catalog.yaml only widen the set of valid rows.

Every row that was stored, spooled or published under the old catalog must be valid under the new
one, with the same meaning: names, keys, rules of ids, types, units and references stay. Values may
be added, and NULL where a value was required.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import msgspec
import pyarrow as pa

from store.errors import CatalogError
from store.schema import row_checks
from store.schema.catalog import SENSITIVITIES, Catalog, Column, Enum, Table

_ANOTHER = "Put it back. For another meaning, add a column with another name."


def widen(connection: duckdb.DuckDBPyConnection, held: Catalog, wanted: Catalog) -> list[str]:
    """Return the changes from the catalog of a lake to the wanted one, one line each.

    Under a later schema, a check or a rule of ids may be new if all rows of the attached `lake`
    pass it. Columns that are new, gone or of another type are compared with the lake itself
    (`store.schema.migrate`).

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
        row = connection.execute(
            f"SELECT coalesce(bool_and(coalesce(TRY({check}), false)), true) FROM {rows}"
        ).fetchone()
    except duckdb.Error:
        return False
    return row is not None and row[0] is True


def _widen_enum(
    held: Catalog, wanted: Catalog, table: Table, old: Column, new: Column
) -> Iterator[str]:
    """Yield the values that a column newly accepts; refuse to remove values."""
    place = f"{table.name}.{old.name}"
    if old.enum is None or new.enum is None:
        if old.enum is not new.enum:
            raise CatalogError(
                f"{place} is of {_name_enum(old)} in this lake and of {_name_enum(new)} in "
                "catalog.yaml",
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
        lost = [one for one in _list_values(before, value) if one not in _list_values(after, value)]
        if lost:
            raise CatalogError(
                f"{place} may no longer be {', '.join(lost)} where {before.by} is {value}",
                "Values of an enum are only added. Put it back.",
            )
        for one in _list_values(after, value):
            if one not in _list_values(before, value):
                yield f"value {one} of {place} where {before.by} is {value}"
    for value in after.values:
        if value not in before.values:
            yield f"value {value} of {place}"


def _list_values(enum: Enum, value: str) -> tuple[str, ...]:
    return enum.allowed.get(value, enum.values)


def _name_enum(column: Column) -> str:
    return "any value" if column.enum is None else f"enum {column.enum}"


def _normalize_check(check: str) -> str:
    return " ".join(check.split())
