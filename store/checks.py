"""`store check`: every rule of the catalog asked of every row, every file and every count."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store import catalog as catalogs
from store import derived, lake, validate
from store.bundle import SUFFIX
from store.catalog import Catalog, Table
from store.errors import FlywheelError, RowsRejected
from store.maintenance import ORPHAN_AGE, maintained
from store.reader import Lake

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a lake."""

    table: str
    rule: str
    count: int
    examples: list[str]


def check(location: lake.Location) -> list[Problem]:
    """Test the newest snapshot against every rule; an empty list is a clean lake.

    Keys, references and checks of all rows; row counts against ingest_log (lost, doubled or torn
    bundles); data files that are missing; answers that are kept (`store.derived`) against the
    tables; rejected bundles in the spool.

    Files that a killed commit left behind are no problem, since no snapshot refers to them, and
    neither are bundles that still wait in the spool: both are logged.
    """
    location.require()
    catalog = catalogs.load()
    problems: list[Problem] = []
    with maintained(location, "store check") as connection:
        there = {
            f"{table}.{column}"
            for table, column in connection.execute(
                "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'lake'"
            ).fetchall()
        }
        wanted = [
            f"{table.name}.{one}" for table in catalog.tables.values() for one in table.columns
        ]
        missing = [name for name in wanted if name not in there]
        if missing:
            raise FlywheelError(
                f"the lake has no {missing[0]} yet", "Run `store init` to migrate it."
            )
        # One transaction: DuckLake would read its catalog anew for every query.
        connection.execute("BEGIN")
        problems += _check_files(connection, catalog)
        if not problems:  # rows in files that are missing can be asked nothing
            stored = _rows(connection, catalog)
            for table in catalog.tables.values():
                if stored[table.name]:
                    problems += _check_table(connection, catalog, table)
            problems += _check_counts(connection, catalog, stored)
        connection.execute("ROLLBACK")
        if not problems:
            problems += _check_kept(location)
        _note_leftovers(connection, location)
    rejected = sorted((location.spool / "rejected").glob("*.json"))
    if rejected:
        reasons = [str(json.loads(file.read_text())["reason"]) for file in rejected[:3]]
        problems.append(
            Problem(
                table="spool",
                rule=f"no bundle was rejected (see {location.spool / 'rejected'})",
                count=len(rejected),
                examples=reasons,
            )
        )
    return problems


def _check_table(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, table: Table
) -> list[Problem]:
    relation = f"lake.{table.name}"
    problems: list[Problem] = []
    try:
        validate.check_rules(connection, catalog, table, relation)
    except RowsRejected as error:
        problems.append(_problem(error))
    key = validate.columns(table.key)
    repeated = connection.execute(
        f"SELECT {key}, count(*) FROM {relation} GROUP BY {key} HAVING count(*) > 1 ORDER BY ALL"
    ).fetchall()
    if repeated:
        problems.append(
            Problem(
                table=table.name,
                rule=validate.unique_rule(table),
                count=len(repeated),
                examples=validate.describe((*table.key, "rows"), repeated[:3]),
            )
        )
    for need in validate.needs(catalog, table, relation):
        dangling = connection.execute(
            f"SELECT v FROM ({need.values}) ANTI JOIN lake.{need.target.name} AS t "
            f'ON v = t."{need.target.key[0]}" ORDER BY v'
        ).fetchall()
        if dangling:
            problems.append(
                Problem(
                    table=table.name,
                    rule=validate.reference_rule(need.column, need.target),
                    count=len(dangling),
                    examples=validate.describe((need.column.name,), dangling[:3]),
                )
            )
    return problems


def _rows(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[str, int]:
    parts = [f"SELECT '{name}', count(*) FROM lake.{name}" for name in catalog.tables]
    return dict(connection.execute(" UNION ALL ".join(parts)).fetchall())


def _check_counts(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, stored: dict[str, int]
) -> list[Problem]:
    """Compare rows with what ingest_log says was committed."""
    logged = dict.fromkeys(catalog.tables, 0)
    # A new lake's own row comes with its tables, and a catalog with the migration to it.
    logged["lakes"] = 1
    logged["catalogs"] = stored.get("catalogs", 0)
    counts = connection.execute("SELECT row_counts FROM lake.ingest_log").fetchall()
    logged["ingest_log"] = len(counts)
    for (count,) in counts:
        for name, rows in json.loads(count).items():
            logged[name] = logged.get(name, 0) + int(rows)
    return [
        Problem(
            table=name,
            rule="rows are those of committed bundles",
            count=abs(rows - logged[name]),
            examples=[f"{rows} rows stored, {logged[name]} rows logged"],
        )
        for name, rows in stored.items()
        if rows != logged[name]
    ]


def _check_kept(location: lake.Location) -> list[Problem]:
    """Compare answers that are kept with those of the tables."""
    with Lake(location) as reader:
        unlike = {view: reader.unlike_kept(view) for view in derived.SOURCES}
    return [
        Problem(
            table=view,
            rule="kept answers are those of the tables",
            count=count,
            examples=[f"delete {location.derived}; it is made anew"],
        )
        for view, count in unlike.items()
        if count
    ]


def _check_files(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> list[Problem]:
    problems: list[Problem] = []
    for name in catalog.tables:
        listed = connection.execute(
            f"SELECT data_file FROM ducklake_list_files('lake', '{name}')"
        ).fetchall()
        gone = [str(row[0]) for row in listed if row[0] and not Path(str(row[0])).exists()]
        if gone:
            problems.append(
                Problem(table=name, rule="its files exist", count=len(gone), examples=gone[:3])
            )
    return problems


def leftovers(location: lake.Location) -> list[str]:
    """Return the data files that no snapshot refers to: those of commits that were killed."""
    with maintained(location, "store check") as connection:
        return _leftovers(connection)


def _leftovers(connection: duckdb.DuckDBPyConnection) -> list[str]:
    orphans = connection.execute(
        "CALL ducklake_delete_orphaned_files('lake', dry_run => true, cleanup_all => true)"
    ).fetchall()
    return [str(row[0]) for row in orphans]


def _note_leftovers(connection: duckdb.DuckDBPyConnection, location: lake.Location) -> None:
    orphans = _leftovers(connection)
    if orphans:
        log.info(
            "%d files of commits that were killed; `store compact` removes them when they are "
            "%d days old, such as %s",
            len(orphans),
            ORPHAN_AGE.days,
            orphans[0],
        )
    waiting = len(list(location.spool.glob(f"*{SUFFIX}")))
    if waiting:
        log.info("%d bundles wait in %s; the next append takes them in", waiting, location.spool)


def _problem(error: RowsRejected) -> Problem:
    return Problem(table=error.table, rule=error.rule, count=error.count, examples=error.examples)
