"""Rounds of CUDA-L1's stage 2: prompts for the next round, or the successes of a round.

A round samples from the current policy with the prompts of `--select prompts`, judges the kernels,
and fine-tunes on what `--select successes` gives: correct kernels of that policy and round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import store
from pipelines.contract import Improvements, Message, PerAuthor, Request, Row, Selection
from pipelines.rendering.messages import render_answer, render_improvement, render_question
from pipelines.selection.answers import mix_improvements, select_answers
from pipelines.selection.tasks import select_questions
from store.commandline.members import AuthorOption

DATASET_TYPE = "prompt-only"
TEMPLATE = "sft.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of self-supervised."""

    select: Literal["prompts", "successes"] = "prompts"
    """prompts: one question per task. successes: correct kernels as training rows."""
    policy: AuthorOption | None = None
    """successes: id or name of the author of the kernels (default: all)."""
    round: int | None = None
    """successes: round in which the author wrote the kernels (default: all)."""
    per_policy: PerAuthor = 2
    """successes: maximum number of kernels per task and author."""
    device_kind: Literal["cpu", "cuda"] | None = None
    """prompts: hardware to ask kernels for (default: that of the device measured last)."""
    form: Literal["code", "protocol"] = "code"
    """As in sft. code: the answer contains only the file. protocol: the prompt is that of
    rl-prompts, and the answer also contains its author's analysis and design."""
    improvement_share: float = 0.0
    """successes: share of rows that are improvement-pairs, from 0 to below 1. Their prompts show
    slower kernels, as those of contrastive-batch do."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Pick tasks, or correct kernels of a policy and round.

    Raises EmptyDataset: there is none.
    """
    import pyarrow as pa

    if config.select == "prompts":
        asked = select_questions(lake, request, config.device_kind)
        form = pa.repeat(config.form, asked.rows.num_rows)
        return Selection(
            rows=asked.rows.append_column("_form", form), dropped=asked.dropped, notes=asked.notes
        )
    found = select_answers(
        lake,
        request,
        evidence="measured",
        per_policy=config.per_policy,
        policy=config.policy,
        round=config.round,
        with_words=config.form == "protocol",
    )
    form = pa.repeat(config.form, found.rows.num_rows)
    singles = replace(
        found, rows=found.rows.append_column("_form", form), dataset_type="prompt-completion"
    )
    improvements = Improvements(policy=config.policy, round=config.round)
    return mix_improvements(lake, request, singles, config.improvement_share, improvements)


def render(row: Row) -> dict[str, list[Message]]:
    """Return the prompt of one row, with the completion where the row has a kernel."""
    if row.columns.get("gain") is not None:
        return render_improvement(row)
    prompt = {"prompt": render_question(row, TEMPLATE, form=row.columns["_form"])}
    return prompt | ({"completion": render_answer(row)} if row.kernels else {})
