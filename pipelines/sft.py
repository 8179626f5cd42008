"""Supervised examples: a task as the question, a correct kernel as the answer (CUDA-L1, stage 1).

Kernels have to be correct; their speed does not matter. Near-duplicates within a task are left
out, and at most --per-author kernels per task and author are kept. With `--form protocol`,
questions and answers have the form that rl-prompts later asks for in reinforcement learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import store
from pipelines.contract import Evidence, Improvements, Message, PerAuthor, Request, Row, Selection
from pipelines.rendering.messages import render_answer, render_improvement, render_question
from pipelines.selection.answers import mix_improvements, select_answers
from store.commandline.members import AuthorOption

DATASET_TYPE = "prompt-completion"
TEMPLATE = "sft.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of sft."""

    per_policy: PerAuthor = 2
    """Maximum number of kernels per task and author (CUDA-L1: 2)."""
    policy: AuthorOption | None = None
    """Id or name of the author to learn from (default: all)."""
    evidence: Evidence = "measured"
    """measured: use kernels that our verdicts call correct. claimed: released kernels with a
    published speedup are used, and every row records that."""
    form: Literal["code", "protocol"] = "code"
    """code: the answer contains only the file. protocol: the prompt is that of rl-prompts, and the
    answer has its three parts. Kernels without analysis and design are left out."""
    improvement_share: float = 0.0
    """Share of rows that are improvement-pairs, from 0 to below 1. Their prompts show slower
    kernels, as those of contrastive-batch do."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Pick correct kernels.

    Raises EmptyDataset: there is none.
    """
    singles = select_answers(
        lake,
        request,
        evidence=config.evidence,
        per_policy=config.per_policy,
        policy=config.policy,
        with_words=config.form == "protocol",
    )
    improvements = Improvements(policy=config.policy)
    return mix_improvements(lake, request, singles, config.improvement_share, improvements)


def render(row: Row) -> dict[str, list[Message]]:
    """Return prompt and completion of one row."""
    if row.columns.get("gain") is not None:
        return render_improvement(row)
    form = "protocol" if row.columns["_words"] else "code"
    return {"prompt": render_question(row, TEMPLATE, form=form), "completion": render_answer(row)}
