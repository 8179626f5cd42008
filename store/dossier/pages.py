"""What a lake knows about one kernel, or about one task and its kernels."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.dossier.names import (
    KERNELS,
    RUNS,
    choose_id,
    expand_name,
    find_kernel,
    find_task,
    read_task_names,
)
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.location import Location
    from store.lake.reader import Lake


Kind: TypeAlias = Literal["task", "kernel", "run"]
SECTIONS: dict[Kind, dict[str, str]] = {
    "kernel": {
        "Origin": "origins",
        "Evaluations": "evaluations",
        "Speedups": "speedups",
        "Analyses": "analyses",
        "Claims": "claims",
        "Findings": "findings",
        "Lineage": "lineage",
        "Datasets": "datasets",
    },
    "task": {
        "Claimed": "claims",
        "Judged": "evaluations",
        "Measured": "speedups",
        "Findings": "findings",
    },
    "run": {"Ends": "ends", "Rows": "rows", "Options": "options"},
}
"""Title of each section of a page, and its query."""
_START_OF_ID = re.compile("[0-9a-f-]+")
_HOW_TO_SHOW = (
    "Give the name of a task, such as level1/9 or L1-9, or the id of a kernel or run or its first "
    'characters. `store query "SELECT kernel_id, source FROM kernels LIMIT 5"` lists kernels, '
    '`store query "FROM run_states"` lists runs.'
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One task, kernel or run, and one table per section."""

    kind: Kind
    row: dict[str, Any]
    """The label of the task; the kernel with its features; the run with its state, and what its
    lease says."""
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """One kernel and every edge on the paths back to the first kernels it was made from."""

    kernel_id: str
    edges: pa.Table
    """child_kernel_id, relation (exemplar or parent), parent_kernel_id, their distances from the
    kernel, score as shown, attempts, policy, run, step, written_at, quarantined (the parent)."""


def read_page(lake: Lake, wanted: str) -> Page:
    """Read the page of a task, by its name (level1/9, L1-9), or of a kernel or run, by its id.

    Raises UnknownName if no task, kernel or run matches, or more than one.
    """
    kinds = "task, kernel or run"
    names = read_task_names(lake, wanted)
    start = expand_name(wanted).lower()
    if names.match(wanted) or not _START_OF_ID.fullmatch(start):
        return _read_page(lake, "task", names.find(wanted, kinds, _HOW_TO_SHOW))
    kernels, runs = (
        [str(row[key]) for row in lake.run(file.read_text("utf-8"), {"start": start}).rows()]
        for file, key in ((KERNELS, "kernel_id"), (RUNS, "run_id"))
    )
    chosen = choose_id(kinds, wanted, [*kernels, *runs], _HOW_TO_SHOW)
    if chosen in kernels:
        return read_kernel_page(lake, chosen)
    row = lake.run(read_sql(__file__, "run/run"), {"run_id": chosen}).one()
    assert row is not None
    return _read_page(lake, "run", row | {"state": find_state(lake.location, row)})


def read_task_page(lake: Lake, wanted: str) -> Page:
    """Read the page of the task that `find_task` finds; raises UnknownName."""
    return _read_page(lake, "task", find_task(lake, wanted))


def read_kernel_page(lake: Lake, prefix: str) -> Page:
    """Read the page of the kernel whose id begins with `prefix`.

    Raises UnknownName unless exactly one kernel id begins with it.
    """
    kernel_id = find_kernel(lake, prefix)
    row = lake.run(read_sql(__file__, "kernel/kernel"), {"kernel_id": kernel_id}).one()
    assert row is not None
    return _read_page(lake, "kernel", row)


def find_ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Find the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName unless exactly one kernel id begins with `prefix`.
    """
    kernel_id = find_kernel(lake, prefix)
    edges = lake.run(read_sql(__file__, "kernel/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


def _read_page(lake: Lake, kind: Kind, row: dict[str, Any]) -> Page:
    key = f"{kind}_id"
    sections = {
        title: lake.run(read_sql(__file__, f"{kind}/{query}"), {key: row[key]}).arrow()
        for title, query in SECTIONS[kind].items()
    }
    return Page(kind=kind, row=row, sections=sections)


def find_state(location: Location, run: Mapping[str, Any]) -> str:
    """Return the state of a run in words; the lease of an open one tells whether it still runs.

    Args:
        run: run_id, and the state and host that the view run_states has at some snapshot.

    Raises LakeUnreachable if the server that keeps the leases does not answer.
    """
    if run["state"] != "open":
        return str(run["state"])
    # Ask before reading again: a run stores its end before it gives up its lease.
    if location.find_held([run["run_id"]]):
        return "running"
    with Lake(location) as newest:
        row = newest.run("SELECT state FROM run_states WHERE run_id = $1", [run["run_id"]]).one()
    if row is not None and row["state"] != "open":
        return f"open at this snapshot, and {row['state']} since"
    if location.sees_every_host:
        return "killed (its process is gone, or has lost its connection to the database)"
    if run["host"] not in (None, platform.node()):
        return f"open on another host, {run['host']}, which alone knows whether it still runs"
    return "killed (its process is gone)"
