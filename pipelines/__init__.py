"""Datasets out of a pinned snapshot: SQL picks the rows, templates make the text."""

from pipelines.contract.rows import Kernel, Message, Request, Row, Selection, Task
from pipelines.rendering.templates import fenced, files, render, sizes, task_block, template_hash
from pipelines.selection.rules import asked_tasks, no_rows, sql
from store.ids import messages_json, prompt_id

__all__ = [
    "Kernel",
    "Message",
    "Request",
    "Row",
    "Selection",
    "Task",
    "asked_tasks",
    "fenced",
    "files",
    "messages_json",
    "no_rows",
    "prompt_id",
    "render",
    "sizes",
    "sql",
    "task_block",
    "template_hash",
]
