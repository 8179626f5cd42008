"""Prompts with slower kernels, answered by the fastest kernel of the task.

The prompt is that of contrastive-batch. The answer follows its protocol: an analysis of the kernels
shown, the design of the faster kernel, and its code. Analysis and design state facts of the store:
times, techniques, named constants, the bottleneck of a profile, and the speedup that the change
bought. The lower bound of its speedup is at least --margin times the upper bound of every
exemplar's.
"""

from __future__ import annotations

from dataclasses import dataclass

import store
from pipelines.contract import Improvements, Message, Request, Row, Selection
from pipelines.rendering.messages import render_improvement
from pipelines.selection.answers import select_improvements

DATASET_TYPE = "prompt-completion"
TEMPLATE = "improvement.j2"


@dataclass(frozen=True, kw_only=True)
class Config(Improvements):
    """Options of improvement-pairs."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw answers, and the slower kernels that their prompts show.

    Raises EmptyDataset: no kernel is faster than enough others by the margin.
    """
    return select_improvements(lake, request, config)


def render(row: Row) -> dict[str, list[Message]]:
    """Return prompt and completion of one row."""
    return render_improvement(row)
