"""Selecting rows: SQL files by name, the tasks of a purpose, and what no dataset may hold."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pipelines.contract.rows import Purpose, Request, Selection
from store.errors import EmptyDataset, LeakageFound, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

    import store

OURS = Path(__file__).parent.parent / "sql"
OWN = Path("flywheel/pipelines/sql")

# A lake is pinned, so the test side's kernels are asked of it once.
_kept: WeakKeyDictionary[store.Lake, tuple[Purpose, bool]] = WeakKeyDictionary()


@functools.cache
def sql(folder: str, name: str) -> str:
    """Return the SQL file `name` of a pipeline's folder, or of `shared`; raises UnknownName.

    Files of a user's own pipelines lie in ./flywheel/pipelines/sql/<pipeline>/.
    """
    for root in (OURS, OWN):
        file = root / folder / f"{name}.sql"
        if file.is_file():
            return file.read_text("utf-8").rstrip().rstrip(";")
    known = [file.stem for root in (OURS, OWN) for file in (root / folder).glob("*.sql")]
    raise UnknownName.among(f"SQL file of {folder}", name, known)


def sql_hash(folder: str) -> str:
    """Return the sha256 over the SQL files that a pipeline may use: its own and the shared ones."""
    digest = hashlib.sha256()
    for root in (OURS / "shared", OURS / folder, OWN / folder):
        for file in sorted(root.glob("*.sql")):
            digest.update(f"{root.name}/{file.name}\0{file.read_text('utf-8')}\0".encode())
    return digest.hexdigest()


def asked_tasks(lake: store.Lake, request: Request) -> dict[str, int]:
    """Register the tasks of the request's purpose as `asked`; return what was left out, by reason.

    Kernels that no row of the request may hold are kept as `test_kernels`, `another_function`.

    Raises:
        EmptyDataset: the lake holds no such task.
    """
    import pyarrow.compute as pc

    _keep_excluded(lake, request)
    tasks = lake.run(
        sql("shared", "tasks"), {"purpose": request.purpose, "degenerate": request.degenerate}
    ).arrow()
    lake.register("asked", tasks.filter(pc.is_null(tasks["dropped"])).select(["task_id"]))
    dropped = Counter(reason for reason in tasks["dropped"].to_pylist() if reason is not None)
    if tasks.num_rows == sum(dropped.values()):
        side = "test" if request.purpose == "eval" else "train"
        raise EmptyDataset(
            f"no task of the {side} split among the {tasks.num_rows} tasks of snapshot "
            f"{lake.snapshot}",
            "`store import starter` brings tasks of both splits.",
        )
    return {f"task: {reason}": dropped[reason] for reason in sorted(dropped)}


def no_rows(what: str, hint: str) -> EmptyDataset:
    """Return the refusal of a dataset that would have no rows."""
    return EmptyDataset(f"no row is left: {what}", hint)


def guarded(lake: store.Lake, selection: Selection, request: Request) -> Selection:
    """Hold rows against the rules that no pipeline may break, whatever its SQL picked.

    A task of the test split in a training set is an error of the pipeline. Rows with a kernel
    that is quarantined, surely suspected or rejected (view withheld) or another function than the
    task's, or for training with a kernel of a test task or a near copy of one, are left out and
    counted.

    Raises:
        LeakageFound: a training row asks for a task of the test split; names the tasks.
    """
    import pyarrow as pa

    _register_picked(lake, selection.rows)
    if request.purpose == "train":
        leaks = lake.run(sql("shared", "leaks")).rows()
        if leaks:
            named = ", ".join(f"{leak['name']} ({leak['task_id'][:12]})" for leak in leaks[:3])
            more = f" and {len(leaks) - 3} more" if len(leaks) > 3 else ""
            raise LeakageFound(
                f"{len(leaks)} tasks of the test split would reach training rows: {named}{more}",
                "Join `asked` in the pipeline's SQL, or make prompts for evaluation with "
                "--purpose eval.",
            )
    _keep_excluded(lake, request)
    tainted = lake.run(sql("shared", "tainted")).rows()
    if not tainted:
        return selection
    bad = {row["row_index"] for row in tainted}
    counts = Counter(row["reason"] for row in tainted)
    kept = pa.array([index not in bad for index in range(selection.rows.num_rows)])
    return replace(
        selection,
        rows=selection.rows.filter(kept),
        dropped=selection.dropped | {f"row: {reason}": counts[reason] for reason in sorted(counts)},
    )


def _register_picked(lake: store.Lake, rows: pa.Table) -> None:
    """Register rows as `picked`: row_index, task_id, kernel_ids."""
    import pyarrow as pa

    lake.register(
        "picked",
        rows.select(["task_id", "kernel_ids"]).append_column(
            "row_index", pa.array(range(rows.num_rows), pa.int64())
        ),
    )


def _keep_excluded(lake: store.Lake, request: Request) -> None:
    """Keep `test_kernels` and `another_function`, kernels that rows of the request may not hold.

    The first are attempts at tasks of the test split, none but for training; the second are
    another function than their task's module, none where the request includes them.
    """
    rules = (request.purpose, request.include_nonequivalent)
    if _kept.get(lake) != rules:
        lake.keep("test_kernels", sql("shared", "test_kernels"), {"purpose": request.purpose})
        included = {"included": request.include_nonequivalent}
        lake.keep("another_function", sql("shared", "another_function"), included)
        _kept[lake] = rules


def find_task(lake: store.Lake, wanted: str) -> tuple[str, str]:
    """Return (task_id, name) of the one task that a name or the start of an id stands for.

    Raises:
        UnknownName: none, or several; names them.
    """
    found = lake.run(sql("shared", "find_task"), {"wanted": wanted}).rows()
    if not found:
        known = lake.run('SELECT DISTINCT "name" FROM task_labels').rows()
        raise UnknownName.among("task", wanted, [row["name"] for row in known])
    if len(found) > 1:
        ids = ", ".join(row["task_id"][:12] for row in found[:6])
        raise UnknownName(
            f'"{wanted}" stands for {len(found)} tasks', f"Give the id instead: {ids}."
        )
    return found[0]["task_id"], found[0]["name"]
