"""Pairs for preference learning: a correct kernel, and one that is slower by a margin or wrong.

Both kernels of a pair are for the same task. Their speedups have the same device, baseline and
workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pipelines
import store
from pipelines.contract import Baseline, Evidence, Message, Request, Row, Selection
from pipelines.rendering import messages
from pipelines.selection.rules import find_exclusions, refuse_empty
from pipelines.selection.scores import LEAST_PUBLISHED_RATIO, find_device_kind, find_scores
from pipelines.selection.tasks import select_tasks
from store.errors import DatasetError
from store.schema.clocks import Clock

DATASET_TYPE = "preference"
TEMPLATE = messages.TEMPLATE


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of preference-pairs."""

    rejected: Literal["slower", "wrong", "both"] = "both"
    """Rejected kernels: correct ones that are slower by the margin, wrong ones, or both."""
    margin: float = 1.1
    """Minimum ratio between the lower bound of the faster kernel's speedup and the upper bound of
    the slower one's. Published speedups have no interval: their ratio is at least 1.2 and the
    margin."""
    per_task: int = 2
    """Number of pairs to draw per task and kind; repeats are left out."""
    evidence: Evidence = "measured"
    """measured: use speedups from timings. claimed: use published speedups, and record that in
    every row."""
    device: str | None = None
    """Device whose speedups count (default: the one that this lake measured last, else the one
    with the most)."""
    baseline: Baseline = "eager"
    """Baseline of the speedups."""
    clock: Clock | None = None
    """Clock of the speedups (default: the clock that ranks: gpu on a GPU, throughput on a CPU).
    Published speedups have no clock."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw the pairs.

    Raises:
        EmptyDataset: no task has both sides of a pair.
        DatasetError: an option is out of its range.
    """
    import pyarrow as pa

    if not config.margin >= 1:
        raise DatasetError(f"--margin {config.margin} is below 1", "Give a ratio such as 1.1.")
    if config.per_task < 1:
        raise DatasetError(f"--per-task {config.per_task} is too few", "Give 1 or more.")
    tasks = select_tasks(lake, request)
    scores = find_scores(
        lake,
        request,
        tasks.rows,
        evidence=config.evidence,
        device=config.device,
        baseline=config.baseline,
        clock=config.clock,
    )
    dropped = tasks.dropped | {
        f"kernel: {reason}": count for reason, count in scores.dropped.items()
    }
    wrong = pipelines.keep(
        lake,
        pipelines.sql("shared", "failures"),
        asked=tasks.rows,
        excluded=find_exclusions(lake, request).excluded,
    ).where("dropped IS NULL")
    rows = pipelines.query(
        lake,
        pipelines.sql("preference_pairs", "pairs"),
        {
            "seed": request.seed,
            # In `reach` of a published score, its ratio is a part.
            "margin": config.margin
            if config.evidence == "measured"
            else max(1.0, config.margin / LEAST_PUBLISHED_RATIO),
            "per_task": config.per_task,
            "rejected": config.rejected,
            "evidence": config.evidence,
            "device": scores.device,
            "baseline": config.baseline,
        },
        eligible=scores.eligible,
        wrong=wrong,
    )
    if rows.num_rows == 0:
        raise refuse_empty(
            f"no task has two kernels on {scores.device} that are {config.margin} apart, or a "
            "wrong one",
            "Lower --margin, or measure more kernels.",
            scores.dropped,
        )
    kind = pa.repeat(find_device_kind(lake, scores.device), rows.num_rows)
    return Selection(
        rows=rows.append_column("_device_kind", kind),
        dropped=dropped,
        notes={
            **scores.notes,
            "baseline": config.baseline,
            "evidence": config.evidence,
            "margin": str(config.margin),
        },
    )


def render(row: Row) -> dict[str, list[Message]]:
    """Return prompt, chosen and rejected answer of one row."""
    return {
        "prompt": messages.render_question(row),
        "chosen": messages.render_answer(row, 0),
        "rejected": messages.render_answer(row, 1),
    }
