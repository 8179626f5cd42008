"""Test the rows of one table of an attached lake: rules, ids, keys and references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.errors import RowsRejected
from store.lake.checksums import RESTORE
from store.schema import id_checks, row_checks, sql_text
from store.schema.catalog import Catalog
from store.schema.tables import Table
from store.upkeep.small_copies import SmallCopies

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One defect of a lake."""

    table: str
    rule: str
    count: int
    examples: list[str]
    advice: str = ""
    """What to do about it, if that is the same for every lake."""


def select_later(table: Table, since: int, newest: int) -> str | None:
    """Return SQL, as a relation, for the rows of a table that came after a snapshot.

    None where all rows did.
    """
    if since < 0:
        return None
    # The change feed refuses an empty range.
    if "snapshot_id" not in table.columns or since == newest:
        later = "false" if since == newest else f"snapshot_id > {since}"
        return f"(SELECT * FROM lake.{table.name} WHERE {later})"
    # The column of the table hides the one in which DuckLake has the snapshot of a row.
    key = sql_text.quote_names(table.key)
    place = f"'lake', 'main', '{table.name}', {since + 1}, {newest}"
    return (
        f"(SELECT * FROM lake.{table.name} "
        f"SEMI JOIN (SELECT {key} FROM ducklake_table_insertions({place})) USING ({key}))"
    )


def check_table(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    table: Table,
    later: str | None,
    broken: set[str],
    copies: SmallCopies,
) -> list[Problem]:
    """Return the rules that rows break.

    `later` selects the rows to test, None all of them. Their keys must be unique in the whole
    table, and they may refer to any row. References to the tables in `broken` are not tested.
    """
    copies.add(table)
    whole = copies.find(table)
    relation = later or whole
    problems: list[Problem] = []
    try:
        row_checks.check_relation(connection, catalog, table, relation)
    except RowsRejected as error:
        problems.append(
            Problem(table=error.table, rule=error.rule, count=error.count, examples=error.examples)
        )
    problems += _check_ids(connection, table, relation)
    problems += _check_keys(connection, table, relation, whole)
    for need in row_checks.list_references(catalog, table, relation):
        if need.target.name not in broken:
            problems += _check_reference(connection, need, copies.find(need.target))
    return problems


def _check_keys(
    connection: duckdb.DuckDBPyConnection, table: Table, relation: str, whole: str
) -> list[Problem]:
    key = sql_text.quote_names(table.key)
    among = "" if relation == whole else f"SEMI JOIN {relation} AS later USING ({key})"
    repeated = (
        f"SELECT {key}, count(*) FROM (SELECT {key} FROM {whole} {among}) GROUP BY {key} "
        "HAVING count(*) > 1"
    )
    count, examples = count_and_show(connection, repeated)
    if not count:
        return []
    rule, names = row_checks.describe_key(table), (*table.key, "rows")
    shown = row_checks.describe_rows(names, examples)
    return [Problem(table=table.name, rule=rule, count=count, examples=shown)]


def _check_reference(
    connection: duckdb.DuckDBPyConnection, need: row_checks.Reference, target: str
) -> list[Problem]:
    dangling = (
        f'SELECT v FROM ({need.values}) ANTI JOIN {target} AS t ON v = t."{need.target.key[0]}"'
    )
    count, examples = count_and_show(connection, dangling)
    if not count:
        return []
    rule = row_checks.describe_reference(need.column, need.target)
    shown = row_checks.describe_rows((need.column.name,), examples)
    return [Problem(table=need.table.name, rule=rule, count=count, examples=shown)]


def count_and_show(
    connection: duckdb.DuckDBPyConnection, query: str
) -> tuple[int, list[tuple[object, ...]]]:
    """Return the number of rows of a query, and the first ones."""
    row = connection.execute(f"SELECT count(*) FROM ({query})").fetchone()
    count = int(row[0]) if row else 0
    shown = f"{query} ORDER BY ALL LIMIT {row_checks.EXAMPLES}"
    return count, connection.execute(shown).fetchall() if count else []


def _check_ids(connection: duckdb.DuckDBPyConnection, table: Table, relation: str) -> list[Problem]:
    """Compute the ids of rows again, a batch at a time."""
    import pyarrow as pa

    if not id_checks.is_bound(table):
        return []
    names = sql_text.quote_names(id_checks.list_columns(table))
    answer = connection.execute(f"SELECT {names} FROM {relation}")
    wrong: list[str] = []
    for batch in answer.to_arrow_reader(id_checks.BATCH_ROWS):
        wrong += id_checks.find_wrong_ids(table, pa.Table.from_batches([batch]))
    if not wrong:
        return []
    return [
        Problem(
            table=table.name,
            rule=id_checks.describe_id(table),
            count=len(wrong),
            examples=row_checks.describe_rows(table.key, [(one,) for one in sorted(wrong)[:3]]),
            advice=f"These rows are not what was committed, or were never checked. {RESTORE}",
        )
    ]
