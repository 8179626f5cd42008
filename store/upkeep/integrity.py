"""`store check`: test every row, file and count of a lake against every rule of the catalog."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from store import faults
from store.commandline.echo import Progress, ignore_progress
from store.errors import CatalogError, FlywheelError, RowsRejected, summarize_error
from store.lake import checksums, view_cache
from store.lake.attachment import find_newest_snapshot, list_filled_tables
from store.lake.checksums import RESTORE, Comparison, Damage
from store.lake.location import METADATA, Location
from store.lake.reader import SMALL_ROWS, Lake
from store.lake.sql_files import read_sql, read_view
from store.schema import catalog as catalogs
from store.schema import migrate, row_checks, sql_text
from store.schema.catalog import Catalog, Table
from store.schema.sql_text import fetch_row, quote_values
from store.upkeep.maintenance import (
    NOTHING,
    ORPHAN_AGE,
    Checked,
    count_left_out,
    distrust,
    find_catalog_damage,
    list_orphans,
    open_for_reading,
    read_checked,
    write_checked,
)
from store.writing.spool import NEXT_STEP, count_bundles, list_rejected, locate_folder

log = logging.getLogger(__name__)


_SESSION_TABLES = frozenset({"devices", "evaluations", "timings"})
"""Tables that these rules read."""

_RULES = {
    "arms_together": (
        "timings",
        "the arms of a session by one clock have one evaluation, kernel, task, workload, device, "
        "state of the cache and origin",
        ("session_id", "clock"),
    ),
    "arms_once": (
        "timings",
        "a session has every arm once by each clock",
        ("session_id", "clock", "arm"),
    ),
    "own_evaluation": (
        "timings",
        "a session has the kernel, task and workload of its evaluation, and its device or one of "
        "the same name and kind",
        ("timing_id", "evaluation_id"),
    ),
    "clock_of_processor": ("timings", "a processor has no clock gpu", ("timing_id", "device_id")),
    "device_kinds": ("devices", "one name has one spelling and one kind of device", ("name",)),
}
_MEANINGS = {
    "timings": "No ranking counts these arms.",
    "devices": "Views take devices of one spelling for one, and others for several.",
}
"""What it means that a rule about rows of a table is broken."""


@dataclass(frozen=True)
class Problem:
    """One defect of a lake."""

    table: str
    rule: str
    count: int
    examples: list[str]
    advice: str = ""
    """What to do about it, if that is the same for every lake."""


@dataclass(frozen=True)
class Report:
    """What a check of a lake found, and what it did not read."""

    problems: list[Problem]
    compared: Comparison
    is_partial: bool
    """Whether rows that an earlier check tested were not tested again."""


def check(
    location: Location, progress: Progress = ignore_progress, *, full: bool = True
) -> list[Problem]:
    """Return what `inspect` finds; an empty list is a clean lake."""
    return inspect(location, progress, full=full).problems


def inspect(
    location: Location, progress: Progress = ignore_progress, *, full: bool = True
) -> Report:
    """Test the newest snapshot against every rule.

    The catalog database; data files of every snapshot against the checksums taken when they were
    committed; ids against what they are the hash of; keys, references and checks of all rows; row
    counts against ingest_log (lost, doubled or torn bundles); answers that are kept
    (`store.lake.view_cache`) against the tables; rejected bundles in the spool. Damage is reported
    like a broken rule, and tables that are still readable are checked.

    Without `full`, what an earlier check on this host has found whole (`maintenance.Checked`) is
    not read again: rows that were in the lake then, and data files that nobody has written since.
    Kept answers are compared when nothing was checked before.

    Files that a killed commit left behind are no problem, since no snapshot refers to them, and
    neither are bundles that still wait in the spool: both are logged, and so is the number of
    files without a recorded checksum.

    Raises LakeUnreachable for a published edition, which has no records of commits to check.
    """
    location.require()
    location.require_writable()
    problems: list[Problem] = []
    checked = NOTHING
    compared = Comparison(files=[], damaged=[], stamps={}, unread=frozenset())
    damage = find_catalog_damage(location)
    if damage is not None:
        return Report([_report_database(location, damage)], compared, is_partial=False)
    try:
        with open_for_reading(location) as connection:
            files = checksums.list_attached_files(connection, location)
            if not full:
                checked = read_checked(connection, location, _read_rules(connection))
        compared = checksums.compare_files(files, progress, trusted=checked.files)
        count = sum(one.sha256 is None for one in files)
        if count:
            log.info(
                "no checksum recorded for %d of %d data files: an earlier version or another "
                "program wrote them, and only their size and footer were tested; `store compact` "
                "records the checksums",
                count,
                len(files),
            )
        with open_for_reading(location) as connection:
            if compared.damaged:
                distrust(location)
            rules = _read_rules(connection)
            _check_lake(connection, location, rules, (compared, checked), problems, progress)
            if not problems:
                # Files of later commits have not been compared.
                whole = Checked(snapshot=find_newest_snapshot(connection), files=compared.stamps)
                write_checked(connection, location, rules, whole)
    except (duckdb.Error, UnicodeDecodeError) as error:
        faults.raise_unless_damage(error, location.url)
        problems.append(_report_database(location, summarize_error(error)))
    if not problems and checked is NOTHING and any(location.derived.glob("*.parquet")):
        advice = f"Delete {location.derived}; it is made anew."
        with Lake(location) as reader:
            for view in view_cache.SOURCES:
                try:
                    count = reader.count_stale_rows(view)
                    examples = [f"{count} rows differ"]
                except FlywheelError as error:
                    count, examples = 1, [summarize_error(error)]
                if count:
                    rule = "kept answers are those of the tables"
                    problems.append(Problem(view, rule, count, examples, advice))
    if rejected := list_rejected(catalogs.load(), location.spool):
        rule = f"no bundle was rejected (see {locate_folder(location.spool)})"
        reasons = [bundle.reason for bundle in rejected[:3]]
        problems.append(Problem("spool", rule, len(rejected), reasons, NEXT_STEP))
    return Report(problems, compared, is_partial=checked is not NOTHING)


def _read_rules(connection: duckdb.DuckDBPyConnection) -> Catalog:
    """Return the catalog that the attached lake follows, whose rules its rows must keep.

    It is the installed one where the lake keeps none, or one that is damaged.
    """
    installed, record = catalogs.load(), None
    try:
        record = migrate.read_record(connection)
        if record is None or record.definition == installed.definition:
            return installed
        held = record.read()
    except duckdb.Error:
        return installed
    except CatalogError:
        migrate.refuse_newer(record, installed, "check")
        return installed
    return installed if held.digest == installed.digest else held


def _check_lake(
    connection: duckdb.DuckDBPyConnection,
    location: Location,
    catalog: Catalog,
    known: tuple[Comparison, Checked],
    problems: list[Problem],
    progress: Progress,
) -> None:
    """Add the problems of the rows of an attached lake, and of the files that it still has.

    `catalog` has the rules; `known` is how files compare, and what need not be read again.
    """
    compared, checked = known
    # One transaction; otherwise DuckLake would read its catalog again for every query.
    connection.execute("BEGIN")
    names = "SELECT concat(table_name, '.', column_name) FROM duckdb_columns()"
    stored = connection.execute(f"{names} WHERE database_name = 'lake'").fetchall()
    there = {name for (name,) in stored}
    # A lake of an earlier version has no checksums, which is no reason not to check it.
    tables = [
        table
        for table in catalog.tables.values()
        if table.name != checksums.TABLE or f"{table.name}.path" in there
    ]
    # What rows of several tables say together is tested by the rules of this version.
    installed = catalogs.load().tables
    needed = [installed[name] for name in sorted(_SESSION_TABLES) if name in installed]
    wanted = [f"{table.name}.{one}" for table in (*tables, *needed) for one in table.columns]
    missing = [name for name in wanted if name not in there]
    if missing:
        raise FlywheelError(f"the lake has no {missing[0]} yet", "Run `store init` to migrate it.")
    files = checksums.list_attached_files(connection, location, with_checksums=False)
    now = {one.path for one in files}
    # Compaction may have removed some files since they were compared.
    damaged = [one for one in compared.damaged if one.file.path in now]
    problems += [_report_damage(one) for one in damaged]
    # Without a checksum, a file that somebody has written may have other rows than it had.
    rewritten = {
        one.table
        for one in compared.files
        if one.sha256 is None and one.path not in compared.unread
    }
    broken = {one.file.table for one in damaged if one.file.until is None}
    filled = list_filled_tables(connection, location)
    counts = {table.name: 0 for table in tables if table.name not in filled}
    newest = find_newest_snapshot(connection)
    # DuckLake queries its catalog several times for every scan, and each rule of a table and each
    # reference to it is a scan. Therefore small tables are copied.
    most_rows = 0 if checked.snapshot >= 0 else SMALL_ROWS
    small = connection.execute(
        location.qualify(
            f"SELECT table_name FROM {METADATA}.ducklake_table "
            f"JOIN {METADATA}.ducklake_table_stats USING (table_id) "
            f"WHERE record_count <= {most_rows}"
        )
    ).fetchall()
    copied: set[str] = set()
    for number, table in enumerate(tables):
        progress(number, len(tables), "tables checked")
        if table.name in filled and table.name not in broken:
            since = -1 if table.name in rewritten else checked.snapshot
            later = _select_later(table, since, newest)
            try:
                (counts[table.name],) = fetch_row(
                    connection, f"SELECT count(*) FROM lake.{table.name}"
                )
                if counts[table.name] and (table.name,) in small:
                    connection.execute(
                        f"CREATE TEMP TABLE checked_{table.name} AS FROM lake.{table.name}"
                    )
                    copied.add(table.name)
                if counts[table.name]:
                    problems += _check_table(connection, catalog, table, later, broken, copied)
            except (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
                faults.raise_unless_damage(error, files[0].files.url if files else "the lake")
                # The error has ended the transaction.
                connection.execute("ROLLBACK")
                connection.execute("BEGIN")
                copied.clear()
                counts.pop(table.name, None)
                broken.add(table.name)
                mine = [one for one in files if one.table == table.name]
                undecodable = list(checksums.find_undecodable(mine))
                problems += [_report_damage(one) for one in undecodable]
                if not undecodable:
                    said = [summarize_error(error)]
                    problems.append(Problem(table.name, "its rows can be read", 1, said, RESTORE))
    if catalog.tables.keys() - broken >= _SESSION_TABLES:
        # The rules that devices break, and timing sessions with rows that were not checked.
        later = _select_later(catalog.table("timings"), checked.snapshot, newest)
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW tested_timings AS FROM {later or 'lake.timings'}"
        )
        # A later arm may join an earlier session.
        whole = "" if later is None else "SEMI JOIN tested_timings USING (session_id)"
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW tested_sessions AS SELECT * FROM lake.timings {whole}"
        )
        for name, (table, rule, columns) in _RULES.items():
            # Planning the queries takes most of the time of a check of few rows.
            if table in filled:
                query, advice = read_sql(__file__, f"sessions/{name}"), _MEANINGS[table]
                problems += _find_problems(connection, query, table, rule, columns, advice)
    if catalog.tables.keys() - broken >= _SESSION_TABLES and "timings" in filled:
        # The rules that tested timings break by themselves, which the view states for rankings. It
        # reads the tested rows here.
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE impossible_timings AS "
            "WITH timings AS (FROM temp.tested_timings), devices AS (FROM lake.devices), "
            "evaluations AS (FROM lake.evaluations) "
            "SELECT timing_id, session_id, impossible AS rule "
            f"FROM ({read_view('clocked_timings')}) WHERE impossible IS NOT NULL"
        )
        advice = (
            "No judge writes such rows, and no ranking counts them. Judge the kernels again to "
            "rank them."
        )
        for (rule,) in connection.execute(read_sql(__file__, "sessions/broken_rules")).fetchall():
            query = (
                "SELECT timing_id, session_id FROM temp.impossible_timings "
                f"WHERE rule IN ({quote_values((rule,))})"
            )
            names = ("timing_id", "session_id")
            problems += _find_problems(connection, query, "timings", rule, names, advice)
    if "ingest_log" in counts:
        # Compare rows with what ingest_log says was committed.
        logged = dict.fromkeys(counts, 0)
        # The row of a new lake comes with its tables, and a catalog with its migration.
        logged["lakes"] = 1
        logged["catalogs"] = counts.get("catalogs", 0)
        logged["ingest_log"] = counts.get("ingest_log", 0)
        for name, rows in connection.execute(read_sql(__file__, "logged_rows")).fetchall():
            logged[name] = logged.get(name, 0) + rows
        logged["rollout_tokens"] = logged.get("rollout_tokens", 0) - count_left_out(
            connection, location
        )
        for name, rows in counts.items():
            # Checksums belong to no bundle: they come with the files that a commit writes.
            if rows != logged[name] and name != checksums.TABLE:
                rule = "rows are those of committed bundles"
                said = [f"{rows} rows stored, {logged[name]} rows logged"]
                problems.append(Problem(name, rule, abs(rows - logged[name]), said))
    connection.execute("ROLLBACK")
    orphans = list_orphans(connection, location)
    if orphans:
        log.info(
            "data files that this catalog does not know: %d, such as %s; a failed commit leaves "
            "such files, and so does an older copy of the catalog. `store compact "
            "--remove-orphans` lists and deletes those that are more than %d days old",
            len(orphans),
            orphans[0].path,
            ORPHAN_AGE.days,
        )
    waiting = count_bundles(catalogs.load(), location.spool)
    if waiting:
        log.info(
            "bundles that wait in %s: %d; the next append or `store init` commits them",
            location.spool,
            waiting,
        )


def _name_relation(table: Table, copied: set[str]) -> str:
    """Return SQL, as a relation, for the rows of a table: its copy, or the table itself.

    A table without a copy is read from the lake in part. A copy reads all of it, and damage of
    columns that the caller does not ask for would end the check of another table.
    """
    return f"temp.checked_{table.name}" if table.name in copied else f"lake.{table.name}"


def _select_later(table: Table, since: int, newest: int) -> str | None:
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


def _check_table(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    table: Table,
    later: str | None,
    broken: set[str],
    copied: set[str],
) -> list[Problem]:
    """Return the rules that rows break.

    `later` selects the rows to test, None all of them. Their keys must be unique in the whole
    table, and they may refer to any row. References to the tables in `broken` are not tested.
    """
    whole = _name_relation(table, copied)
    relation = later or whole
    problems: list[Problem] = []
    try:
        row_checks.check_relation(connection, catalog, table, relation)
    except RowsRejected as error:
        problems.append(Problem(error.table, error.rule, error.count, error.examples))
    if names := row_checks.list_columns(table):
        answer = connection.execute(f"SELECT {sql_text.quote_names(names)} FROM {relation}")
        wrong: list[str] = []
        for batch in answer.to_arrow_reader(row_checks.BATCH_ROWS):
            wrong += row_checks.find_wrong_ids(table, pa.Table.from_batches([batch]))
        if wrong:
            examples = row_checks.describe_rows(table.key, [(one,) for one in sorted(wrong)[:3]])
            advice = f"These rows are not what was committed, or were never checked. {RESTORE}"
            rule = row_checks.describe_id(table)
            problems.append(Problem(table.name, rule, len(wrong), examples, advice))
    key = sql_text.quote_names(table.key)
    among = "" if relation == whole else f"SEMI JOIN {relation} AS later USING ({key})"
    repeated = (
        f"SELECT {key}, count(*) FROM (SELECT {key} FROM {whole} {among}) GROUP BY {key} "
        "HAVING count(*) > 1"
    )
    rule, names = row_checks.describe_key(table), (*table.key, "rows")
    problems += _find_problems(connection, repeated, table.name, rule, names)
    for column, target in catalog.references(table):
        if target.name not in broken:
            value = f'"{column.name}"'
            listed = f"unnest({value})" if column.type.endswith("[]") else value
            dangling = (
                f"SELECT v FROM (SELECT DISTINCT {listed} AS v FROM {relation}) "
                f'ANTI JOIN {_name_relation(target, copied)} AS t ON v = t."{target.key[0]}" '
                "WHERE v IS NOT NULL"
            )
            rule = row_checks.describe_reference(column, target)
            problems += _find_problems(connection, dangling, table.name, rule, (column.name,))
    return problems


def _find_problems(
    connection: duckdb.DuckDBPyConnection,
    query: str,
    table: str,
    rule: str,
    names: tuple[str, ...],
    advice: str = "",
) -> list[Problem]:
    """Return the problem whose rows a query gives, with the first of these rows; none without."""
    (count,) = fetch_row(connection, f"SELECT count(*) FROM ({query})")
    if not count:
        return []
    shown = connection.execute(f"{query} ORDER BY ALL LIMIT {row_checks.EXAMPLES}").fetchall()
    examples = row_checks.describe_rows(names, shown)
    return [Problem(table, rule, count, examples, advice)]


def _report_database(location: Location, said: str) -> Problem:
    examples = [f"{location.catalog_name}: {said[:200]}"]
    advice = f"{faults.RESTORE_LAKE} Rows committed since are lost."
    return Problem("catalog", "the catalog database is whole", 1, examples, advice)


def _report_damage(damage: Damage) -> Problem:
    rule = "its files are as they were committed"
    return Problem(damage.file.table, rule, 1, [str(damage)], RESTORE)
