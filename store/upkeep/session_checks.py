"""Test what rows of several tables say together: the arms of timing sessions, and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.lake.sql_files import read_sql, read_view
from store.schema import row_checks
from store.schema.catalog import Catalog
from store.schema.device_names import NAME_RULE
from store.schema.sql_text import quote_values
from store.upkeep.table_checks import Problem, count_and_show, select_later

if TYPE_CHECKING:
    import duckdb

SESSION_TABLES = frozenset({"devices", "evaluations", "timings"})
"""Tables that these rules read."""

_RULES = {
    "arms_together": (
        "the arms of a session by one clock have one evaluation, kernel, task, workload, device, "
        "state of the cache and origin",
        ("session_id", "clock"),
    ),
    "arms_once": (
        "a session has every arm once by each clock",
        ("session_id", "clock", "arm"),
    ),
    "own_evaluation": (
        "a session has the kernel, task and workload of its evaluation, and its device or one of "
        "the same name and kind",
        ("timing_id", "evaluation_id"),
    ),
    "clock_of_processor": ("a processor has no clock gpu", ("timing_id", "device_id")),
    "device_names": (NAME_RULE, ("name",)),
    "device_kinds": ("one name has one spelling and one kind of device", ("name",)),
}
_OF_DEVICES = {
    "device_names": "Views take these for other devices than those that they look like.",
    "device_kinds": "Views take devices of one spelling for one, and others for several.",
}
"""The rules about devices, with what a broken one means."""


def check_sessions(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, since: int, newest: int
) -> list[Problem]:
    """Return the rules that devices break, and timing sessions with rows after a snapshot.

    `since` is -1 where all sessions are to be tested.
    """
    later = select_later(catalog.table("timings"), since, newest)
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW tested_timings AS FROM {later or 'lake.timings'}"
    )
    # A later arm may join an earlier session.
    whole = "" if later is None else "SEMI JOIN tested_timings USING (session_id)"
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW tested_sessions AS SELECT * FROM lake.timings {whole}"
    )
    problems: list[Problem] = []
    for name, (rule, columns) in _RULES.items():
        count, examples = count_and_show(connection, read_sql(__file__, f"sessions/{name}"))
        if count:
            table = "devices" if name in _OF_DEVICES else "timings"
            problems.append(
                Problem(
                    table=table,
                    rule=rule,
                    count=count,
                    examples=row_checks.describe_rows(columns, examples),
                    advice=_OF_DEVICES.get(name, "No ranking counts these arms."),
                )
            )
    return problems + _list_impossible(connection)


def _list_impossible(connection: duckdb.DuckDBPyConnection) -> list[Problem]:
    """Return the rules that tested timings break by themselves, which the view states for rankings.

    The view reads the tested rows here.
    """
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE impossible_timings AS "
        "WITH timings AS (FROM temp.tested_timings), devices AS (FROM lake.devices), "
        "evaluations AS (FROM lake.evaluations) "
        "SELECT timing_id, session_id, impossible AS rule "
        f"FROM ({read_view('clocked_timings')}) WHERE impossible IS NOT NULL"
    )
    rules = connection.execute(read_sql(__file__, "sessions/broken_rules")).fetchall()
    problems: list[Problem] = []
    for (rule,) in rules:
        query = (
            "SELECT timing_id, session_id FROM temp.impossible_timings "
            f"WHERE rule IN ({quote_values((rule,))})"
        )
        count, examples = count_and_show(connection, query)
        problems.append(
            Problem(
                table="timings",
                rule=rule,
                count=count,
                examples=row_checks.describe_rows(("timing_id", "session_id"), examples),
                advice="No judge writes such rows, and no ranking counts them. Judge the kernels "
                "again to rank them.",
            )
        )
    return problems
