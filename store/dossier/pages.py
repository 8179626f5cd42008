"""What a lake knows about one kernel, or about one task and its kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.dossier.names import find_kernel, find_task, read_task_names
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
_HEXADECIMAL = re.compile("[0-9a-f]+")
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
    names = read_task_names(lake, wanted)
    if names.match(wanted) or not _HEXADECIMAL.fullmatch(wanted.lower()):
        return _read_task_page(lake, names.find(wanted, "task or kernel", _HOW_TO_SHOW))
    return _read_kernel_page(lake, find_kernel(lake, wanted, "task or kernel", _HOW_TO_SHOW))


def read_task_page(lake: Lake, wanted: str) -> TaskPage:
    """Read the page of the task that `find_task` finds; raises UnknownName."""
    return _read_task_page(lake, find_task(lake, wanted))


def read_kernel_page(lake: Lake, prefix: str) -> KernelPage:
    """Read the page of the kernel whose id begins with `prefix`.

    Raises UnknownName unless exactly one kernel id begins with it.
    """
    return _read_kernel_page(lake, find_kernel(lake, prefix))


def find_ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Find the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName unless exactly one kernel id begins with `prefix`.
    """
    kernel_id = find_kernel(lake, prefix)
    edges = lake.run(read_sql(__file__, "kernel/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


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
