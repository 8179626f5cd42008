"""Prompts for reinforcement learning without exemplars: the task and the form of the answer.

The prompts are those of contrastive-batch without kernels, so the same parser reads the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import store
from pipelines.contract import Message, Request, Row, Selection
from pipelines.rendering.messages import render_question
from pipelines.selection.tasks import select_questions

DATASET_TYPE = "prompt-only"
TEMPLATE = "contrastive.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of rl-prompts."""

    device_kind: Literal["cpu", "cuda"] | None = None
    """Hardware that the prompts ask kernels for (default: that of the device measured last)."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Pick the tasks of the purpose.

    Raises EmptyDataset: there is none.
    """
    return select_questions(lake, request, config.device_kind)


def render(row: Row) -> dict[str, list[Message]]:
    """Return the prompt of one row."""
    return {"prompt": render_question(row, TEMPLATE)}
