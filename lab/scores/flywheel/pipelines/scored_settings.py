"""Prompts that hide sizes and show two settings of a task, with or without their scores.

For training, the rows of docs/runs/PROTOCOL-2.md: the answer is the best kernel of the task. For
evaluation (--purpose eval), the prompts of its five arms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pipelines
import store
from lab.scores.answer import mask_sizes, write_answer
from pipelines import Message, Request, Row, Selection

DATASET_TYPE = "prompt-completion"
TEMPLATE = "scored_settings.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of scored-settings."""

    scored: int = 4800
    """Training rows with scores."""
    unscored: int = 600
    """Training rows with kernels and without scores."""
    bare: int = 600
    """Training rows without kernels; a text that repeats is one row with several copies."""
    draws: int = 50
    """Pairs of exemplars for each test task."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw pairs of settings: for training with their answers, for evaluation for every arm."""
    tasks = pipelines.select_tasks(lake, request)
    surface = pipelines.query(lake, pipelines.sql("scored_settings", "surface"))
    parameters: dict[str, Any] = {"seed": request.seed}
    if request.purpose == "train":
        parameters |= {
            "scored": config.scored,
            "unscored": config.unscored,
            "bare": config.bare,
        }
    else:
        parameters["draws"] = config.draws
    name = "rows" if request.purpose == "train" else "arms"
    rows = pipelines.query(
        lake,
        pipelines.sql("scored_settings", name),
        parameters,
        surface=surface,
        asked=tasks.rows,
    )
    kind = DATASET_TYPE if request.purpose == "train" else "prompt-only"
    return Selection(rows=rows, dropped=tasks.dropped, dataset_type=kind)


def render(row: Row) -> dict[str, list[Message]]:
    """Return the prompt of a row, and for training its answer."""
    columns = row.columns
    answered = "fastest" in columns
    shown = row.kernels[:-1] if answered else row.kernels
    scores = columns["shown_scores"] or [None] * len(shown)
    text = pipelines.render(
        TEMPLATE,
        reference=mask_sizes(row.task.code),
        shown=[
            {"code": kernel.code, "score": score}
            for kernel, score in zip(shown, scores, strict=True)
        ],
    )
    turns: dict[str, list[Message]] = {"prompt": [{"role": "user", "content": text}]}
    if answered:
        answer = write_answer(row.kernels[-1].code, columns["fastest"])
        turns["completion"] = [{"role": "assistant", "content": answer}]
    return turns
