"""Text of one-shot questions and of stored kernels as their answers."""

from __future__ import annotations

from pipelines.contract.rows import Message, Row
from pipelines.rendering.templates import render, render_task

TEMPLATE = "one_shot.j2"


def render_question(row: Row) -> list[Message]:
    """Return the one-shot prompt of a row."""
    text = render(
        TEMPLATE, task_block=render_task(row.task), device_kind=row.columns["_device_kind"]
    )
    return [{"role": "user", "content": text}]


def render_answer(row: Row, place: int = 0) -> list[Message]:
    """Return a kernel of a row as the assistant's turn, with its author's words if it has some."""
    text = render("answer.j2", kernel=row.kernels[place], said=row.columns.get("_words"))
    return [{"role": "assistant", "content": text}]
