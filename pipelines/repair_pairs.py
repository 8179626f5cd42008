"""Prompts with a wrong kernel and its verdict, answered by its nearest later repair.

A repair is a correct kernel of the same task, written later, whose code tokens resemble those of
the wrong one: it shares the most bands of the stored near-duplicate signature (MinHash), and one at
least. A wrong kernel without such a repair has no row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pipelines
import store
from pipelines.contract import Message, Request, Row, Selection
from pipelines.rendering.messages import render_answer
from pipelines.selection.rules import find_exclusions, refuse_empty
from pipelines.selection.tasks import select_tasks
from store.errors import DatasetError

DATASET_TYPE = "prompt-completion"
TEMPLATE = "repair.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of repair-pairs."""

    per_task: int = 4
    """Maximum number of pairs per task."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Pair wrong kernels with their repairs.

    Raises:
        EmptyDataset: no wrong kernel has a repair.
        DatasetError: an option is out of its range.
    """
    if config.per_task < 1:
        raise DatasetError(f"--per-task {config.per_task} is too few", "Give 1 or more.")
    tasks = select_tasks(lake, request)
    exclusions = find_exclusions(lake, request)
    sides = {
        name: pipelines.keep(
            lake,
            pipelines.sql("shared", file),
            asked=tasks.rows,
            unfit=exclusions.unfit,
            excluded=exclusions.excluded,
        )
        for name, file in (("failures", "failures"), ("successes", "successes_measured"))
    }
    counts = Counter(
        str(reason)
        for side in sides.values()
        for reason in pipelines.query(
            lake, "SELECT dropped FROM side WHERE dropped IS NOT NULL", side=side
        )["dropped"].to_pylist()
    )
    rows = pipelines.query(
        lake,
        pipelines.sql("repair_pairs", "pairs"),
        {"seed": request.seed, "per_task": config.per_task},
        **{name: side.where("dropped IS NULL") for name, side in sides.items()},
    )
    if rows.num_rows == 0:
        raise refuse_empty(
            f"no wrong kernel at snapshot {lake.snapshot} has a correct one of its task that was "
            "written later and resembles it",
            '`store query "FROM repairs"` lists wrong kernels with their repairs.',
            dict(sorted(counts.items())),
        )
    dropped = {f"kernel: {reason}": counts[reason] for reason in sorted(counts)}
    return Selection(rows=rows, dropped=tasks.dropped | dropped, notes={"evidence": "measured"})


def render(row: Row) -> dict[str, list[Message]]:
    """Return prompt and completion of one row."""
    text = pipelines.render(
        TEMPLATE,
        task_block=pipelines.render_task(row.task),
        kernel=row.kernels[0],
        status=row.columns["status"],
        reason=row.columns["reason"],
        message=row.columns["_message"],
        device=row.columns["device"],
        device_kind=row.columns["_device_kind"],
    )
    return {"prompt": [{"role": "user", "content": text}], "completion": render_answer(row, 1)}
