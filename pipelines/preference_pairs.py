"""Pairs for preference learning: a correct kernel over one that is slower by a margin, or wrong.

Both kernels answer the same task. Speedups of a pair are of one device, baseline and workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pipelines
from pipelines.contract.rows import Message, Request, Row, Selection
from pipelines.selection import answers
from pipelines.selection.rules import asked_tasks
from pipelines.selection.scores import Baseline, Evidence, device_kind, scores
from store.errors import DatasetError

if TYPE_CHECKING:
    import store

DATASET_TYPE = "preference"
TEMPLATE = answers.TEMPLATE


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of preference-pairs."""

    rejected: Literal["slower", "wrong", "both"] = "both"
    """What is rejected: correct kernels that are slower by the margin, wrong ones, or both."""
    margin: float = 1.2
    """Smallest ratio between the speedups of a faster and a slower kernel."""
    per_task: int = 2
    """Pairs drawn per task and kind; repeats are left out."""
    evidence: Evidence = "measured"
    """measured: speedups from timings. claimed: published ones stand in, and every row says so."""
    device: str | None = None
    """Device whose speedups count (default: the one with the most)."""
    baseline: Baseline = "eager"
    """What speedups are relative to."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw the pairs.

    Raises:
        EmptyDataset: no task has both sides of a pair.
        DatasetError: an option is out of its range.
    """
    import pyarrow as pa

    if not config.margin > 1:
        raise DatasetError(f"--margin {config.margin} is not above 1", "Give a ratio such as 1.2.")
    if config.per_task < 1:
        raise DatasetError(f"--per-task {config.per_task} is too few", "Give 1 or more.")
    dropped = asked_tasks(lake, request)
    found = scores(
        lake,
        request,
        evidence=config.evidence,
        device=config.device,
        baseline=config.baseline,
    )
    dropped |= {f"kernel: {reason}": count for reason, count in found.dropped.items()}
    lake.register("wrong", lake.run(pipelines.sql("preference_pairs", "wrong")).arrow())
    rows = lake.run(
        pipelines.sql("preference_pairs", "pairs"),
        {
            "seed": request.seed,
            "margin": config.margin,
            "per_task": config.per_task,
            "rejected": config.rejected,
            "evidence": config.evidence,
            "device": found.device,
            "baseline": config.baseline,
        },
    ).arrow()
    if rows.num_rows == 0:
        raise pipelines.no_rows(
            f"no task has two kernels on {found.device} that are {config.margin} apart, or a "
            "wrong one",
            "Lower --margin, or measure more kernels.",
        )
    kind = pa.repeat(device_kind(lake, found.device), rows.num_rows)
    return Selection(
        rows=rows.append_column("_device_kind", kind),
        dropped=dropped,
        notes={
            "device": found.device,
            "baseline": config.baseline,
            "evidence": config.evidence,
            "margin": str(config.margin),
        },
    )


def render(row: Row) -> dict[str, list[Message]]:
    """Return prompt, chosen and rejected answer of one row."""
    return {
        "prompt": answers.question(row),
        "chosen": answers.answer(row, 0),
        "rejected": answers.answer(row, 1),
    }
