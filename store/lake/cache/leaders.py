"""Views that show the first row of each group, from files with the first rows of each group.

A query that reads such a view then costs what the groups and the new rows cost, however many rows
compete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.lake.cache import view_cache
from store.lake.cache.kept_files import ViewQuestion, build_scan, match_keys
from store.lake.cache.view_cache import ViewCache
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import duckdb

FIRST_ROWS = 16
"""Rows of a group in a file. If new rows and exclusions outdate all of them, the tasks of the group
are read from the tables."""


@dataclass(frozen=True, kw_only=True)
class Leaders:
    """How a view chooses the first row of each group."""

    rows: str
    """The view whose rows compete; a row depends on its kernel and task alone."""
    group: str
    order: str
    """Columns; task_id is in the group, and the order ends with kernel_id."""
    sources: tuple[str, ...]
    """Tables that the rows follow from."""


_PLACE = "task_id, workload_id, device"
LEADERS = {
    "leading_speedups": Leaders(
        rows="policy_speedups",
        group=f'policy_id, {_PLACE}, baseline, clock, "precision"',
        order="{'slowness': -speedup_low, 'kernel_id': kernel_id}",
        sources=("evaluations", "timings", "generations"),
    ),
    "judged_places": Leaders(
        rows="policy_outcomes",
        group=f"policy_id, {_PLACE}",
        order="kernel_id",
        sources=("evaluations", "generations"),
    ),
    "solved_places": Leaders(
        rows="policy_solutions",
        group=f"policy_id, {_PLACE}",
        order="kernel_id",
        sources=("evaluations", "generations"),
    ),
    "timed_places": Leaders(
        rows="timed_arms",
        group='task_id, workload_id, device_id, arm, clock, "precision", disturbed, own',
        order="kernel_id",
        sources=("evaluations", "timings"),
    ),
    "evaluated_places": Leaders(
        rows="evaluated_kernels",
        group='task_id, workload_id, device_id, "precision", own',
        order="kernel_id",
        sources=("evaluations",),
    ),
    "attempted_tasks": Leaders(
        rows="attempted_kernels",
        group="policy_id, task_id",
        order="kernel_id",
        sources=("evaluations", "generations"),
    ),
}
"""Views that choose the first row of each group; they may leave rows out by kernel and task."""


SMALL_VIEWS = ("default_clocks", "scored_workloads")
"""Views over leaders that other views mention several times, so that a reader stores their rows."""


def list_sources(view: str) -> tuple[str, ...]:
    """Return the tables that a view with files follows from; none for other views."""
    if view in LEADERS:
        return LEADERS[view].sources
    return view_cache.SOURCES.get(view, ())


def find_leading_sql(
    connection: duckdb.DuckDBPyConnection,
    cache: ViewCache,
    question: ViewQuestion,
    view: str,
    *,
    make: bool,
) -> str | None:
    """Return SQL for the rows of a view of `LEADERS`, or None without a file.

    Args:
        connection: Where the other views that the view reads are defined.
        cache: Where the file is.
        question: The rows that compete.
        view: SQL of the view.
        make: Whether to write a file that is missing or far behind.
    """
    leaders = LEADERS[question.view]
    kept = cache.find_base(question)
    new = None if kept is None else cache.find_new_keys(question, kept)
    behind = new is None or new.count > view_cache.DELTA_KEYS
    if behind and make and cache.is_newest(question):
        kept = cache.write_base(question, _build_first_rows(leaders, question)) or kept
        new = None if kept is None else cache.find_new_keys(question, kept)
    if kept is None or new is None:
        return None
    first = f"SELECT * FROM {build_scan(kept.base)}"
    valid = match_keys(build_scan(kept.base), "ANTI", new.table) if new.count else first
    found = f"WITH {leaders.rows} AS ({valid}) SELECT * FROM ({view}\n)"
    outdated = connection.execute(
        f"SELECT DISTINCT task_id FROM (SELECT {leaders.group} FROM ({first}) GROUP BY ALL "
        f"HAVING count(*) = {FIRST_ROWS} EXCEPT SELECT {leaders.group} FROM ({found}))"
    ).fetchall()
    parts = [valid]
    if new.count:
        parts.append(question.build_query(new))
    if outdated:
        tasks = quote_values(tuple(str(task) for (task,) in outdated if task is not None))
        chosen = [f"task_id IN ({tasks})"] if tasks else []
        chosen += ["task_id IS NULL"] if (None,) in outdated else []
        rows = f"SELECT * FROM ({question.build_query(None)})"
        parts.append(f"{rows} WHERE {' OR '.join(chosen)}")
    return f"WITH {leaders.rows} AS ({' UNION ALL '.join(parts)}) SELECT * FROM ({view}\n)"


def describe_leaders(view: str) -> str:
    """Return what determines which rows of a view are in its file, besides SQL."""
    return f"{FIRST_ROWS} of {LEADERS[view]}" if view in LEADERS else ""


def _build_first_rows(leaders: Leaders, question: ViewQuestion) -> str:
    return (
        f"SELECT * FROM ({question.build_query(None)}) QUALIFY row_number() OVER "
        f"(PARTITION BY {leaders.group} ORDER BY {leaders.order}) <= {FIRST_ROWS}"
    )
