"""What a lake knows about one kernel, or about one task and its kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.errors import UnknownName
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.reader import Lake

KERNEL_SECTIONS = {
    "Origin": "origins",
    "Evaluations": "evaluations",
    "Speedups": "speedups",
    "Analyses": "analyses",
    "Claims": "claims",
    "Findings": "findings",
    "Lineage": "lineage",
    "Datasets": "datasets",
}
"""Title of each section of a kernel, and its query."""
TASK_SECTIONS = {
    "Claimed": "claims",
    "Judged": "evaluations",
    "Measured": "speedups",
    "Findings": "findings",
}
"""Title of each section of a task, and its query."""
_SHORT_NAME = re.compile(r"[lL](\d+)-(\d+)")
_LISTED_IDS = 5
_ID_PREFIX = re.compile(r"[0-9a-f]+")
_HOW_TO_NAME_TASKS = "Give a name such as level1/9 or L1-9, or the first 6 characters of an id."
_HOW_TO_SHOW = (
    "Give the name of a task, such as level1/9 or L1-9, or the id of a kernel or its first "
    'characters. `store query "SELECT kernel_id, source FROM kernels LIMIT 5"` lists kernels.'
)


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """One task: its label, and one table per section about the kernels for it."""

    task: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class KernelPage:
    """One kernel: its row and features, and one table per section."""

    kernel: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """One kernel and every edge on the paths back to the first kernels it was made from."""

    kernel_id: str
    edges: pa.Table
    """child_kernel_id, relation (exemplar or parent), parent_kernel_id, their distances from the
    kernel, score as shown, attempts, policy, run, step, written_at, quarantined (the parent)."""


def read_page(lake: Lake, wanted: str) -> KernelPage | TaskPage:
    """Read the page of a task, by its name (level1/9, L1-9), or of a kernel, by its id.

    Raises UnknownName if no task or kernel matches, or more than one.
    """
    rows = _list_tasks(lake, wanted)
    if rows:
        return _read_task_page(lake, _choose_task(wanted, rows))
    return _read_kernel_page(lake, find_kernel_id(lake, wanted, "task or kernel"))


def read_task_page(lake: Lake, wanted: str) -> TaskPage:
    """Read the page of a task, by its name (level1/9, L1-9) or the start of its id.

    Raises UnknownName unless exactly one task matches.
    """
    return _read_task_page(lake, find_task(lake, wanted))


def read_kernel_page(lake: Lake, prefix: str) -> KernelPage:
    """Read the page of the kernel whose id begins with `prefix`.

    Raises UnknownName unless exactly one kernel id begins with it.
    """
    return _read_kernel_page(lake, find_kernel_id(lake, prefix))


def find_ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Find the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName unless exactly one kernel id begins with `prefix`.
    """
    kernel_id = find_kernel_id(lake, prefix)
    edges = lake.run(read_sql(__file__, "kernel/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


def find_task(lake: Lake, wanted: str) -> dict[str, Any]:
    """Return task_id, suite, suite_revision, name and title of a task.

    Raises UnknownName unless exactly one task has this name or start of an id.
    """
    rows = _list_tasks(lake, wanted)
    if not rows:
        known = lake.run('SELECT DISTINCT "name" FROM task_labels').rows()
        error = UnknownName.among("task", wanted, [row["name"] for row in known])
        raise UnknownName(error.message, f"{error.hint} {_HOW_TO_NAME_TASKS}")
    return _choose_task(wanted, rows)


def find_kernel_id(lake: Lake, prefix: str, kinds: str = "kernel") -> str:
    """Return the one kernel id that begins with a prefix; raises UnknownName."""
    normal = prefix.lower()
    ids: list[str] = []
    if _ID_PREFIX.fullmatch(normal):
        ids = [
            row["kernel_id"]
            for row in lake.run(read_sql(__file__, "kernel/find"), {"prefix": normal}).rows()
        ]
    if not ids:
        raise UnknownName(f'no {kinds} "{prefix}"', _HOW_TO_SHOW)
    if len(ids) > 1:
        listed = ", ".join(one[:12] for one in ids[:_LISTED_IDS])
        more = len(ids) > _LISTED_IDS
        raise UnknownName(
            f'"{prefix}" is ambiguous: it matches {"more than " if more else ""}'
            f"{min(len(ids), _LISTED_IDS)} kernels",
            f"Give more characters of an id, such as {listed}{' …' if more else ''}",
        )
    return ids[0]


def _list_tasks(lake: Lake, wanted: str) -> list[dict[str, Any]]:
    short = _SHORT_NAME.fullmatch(wanted)
    name = f"level{short[1]}/{short[2]}" if short else wanted
    return lake.run(read_sql(__file__, "task/find"), {"wanted": name}).rows()


def _choose_task(wanted: str, rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    tasks = {row["task_id"]: row for row in rows}
    if len(tasks) > 1:
        listed = ", ".join(
            f"{r['suite']} {r['suite_revision']}: {i[:12]}" for i, r in tasks.items()
        )
        raise UnknownName(
            f'"{wanted}" is ambiguous: it is the name of {len(tasks)} tasks',
            f"Give the id of one: {listed}"[:300],
        )
    [row] = tasks.values()
    return row


def _read_task_page(lake: Lake, task: dict[str, Any]) -> TaskPage:
    arguments = {"task_id": task["task_id"]}
    sections = {
        title: lake.run(read_sql(__file__, f"task/{query}"), arguments).arrow()
        for title, query in TASK_SECTIONS.items()
    }
    return TaskPage(task=task, sections=sections)


def _read_kernel_page(lake: Lake, kernel_id: str) -> KernelPage:
    arguments = {"kernel_id": kernel_id}
    row = lake.run(read_sql(__file__, "kernel/kernel"), arguments).one()
    assert row is not None
    sections = {
        title: lake.run(read_sql(__file__, f"kernel/{query}"), arguments).arrow()
        for title, query in KERNEL_SECTIONS.items()
    }
    return KernelPage(kernel=row, sections=sections)
