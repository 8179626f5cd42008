"""Datasets out of a pinned snapshot: SQL picks the rows, templates make the text.

Pipelines, trainers and tests use the names below; each is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.contract.baselines import Baseline, Evidence
    from pipelines.contract.exemplars import (
        DrawOptions,
        ExemplarOptions,
        Strategy,
        copy_exemplar_options,
    )
    from pipelines.contract.request import Purpose, Request
    from pipelines.contract.rows import Kernel, Message, Row, Selection, Task
    from pipelines.datasets.content import has_messages, hash_rows
    from pipelines.datasets.job import Dataset, Job
    from pipelines.datasets.materialize import (
        preview_dataset,
        render_rows,
        select_rows,
        write_dataset,
    )
    from pipelines.datasets.record import record_dataset
    from pipelines.datasets.tokens import make_counter
    from pipelines.rendering.templates import (
        describe_sizes,
        fence,
        render,
        render_files,
        render_task,
        template_hash,
    )
    from pipelines.selection.draws import draw
    from pipelines.selection.relations import Relation, keep, query
    from pipelines.selection.sql_files import sql
    from pipelines.selection.tasks import Tasks, select_tasks
    from pipelines.selection.texts import fetch_texts
    from store.ids import messages_json, prompt_id

__all__ = [
    "Baseline",
    "Dataset",
    "DrawOptions",
    "Evidence",
    "ExemplarOptions",
    "Job",
    "Kernel",
    "Message",
    "Purpose",
    "Relation",
    "Request",
    "Row",
    "Selection",
    "Strategy",
    "Task",
    "Tasks",
    "copy_exemplar_options",
    "describe_sizes",
    "draw",
    "fence",
    "fetch_texts",
    "has_messages",
    "hash_rows",
    "keep",
    "make_counter",
    "messages_json",
    "preview_dataset",
    "prompt_id",
    "query",
    "record_dataset",
    "render",
    "render_files",
    "render_rows",
    "render_task",
    "select_rows",
    "select_tasks",
    "sql",
    "template_hash",
    "write_dataset",
]

_MODULES = {
    "pipelines.contract.baselines": ("Baseline", "Evidence"),
    "pipelines.contract.exemplars": (
        "DrawOptions",
        "ExemplarOptions",
        "Strategy",
        "copy_exemplar_options",
    ),
    "pipelines.contract.request": ("Purpose", "Request"),
    "pipelines.contract.rows": ("Kernel", "Message", "Row", "Selection", "Task"),
    "pipelines.datasets.content": ("has_messages", "hash_rows"),
    "pipelines.datasets.job": ("Dataset", "Job"),
    "pipelines.datasets.materialize": (
        "preview_dataset",
        "render_rows",
        "select_rows",
        "write_dataset",
    ),
    "pipelines.datasets.record": ("record_dataset",),
    "pipelines.datasets.tokens": ("make_counter",),
    "pipelines.rendering.templates": (
        "describe_sizes",
        "fence",
        "render",
        "render_files",
        "render_task",
        "template_hash",
    ),
    "pipelines.selection.draws": ("draw",),
    "pipelines.selection.relations": ("Relation", "keep", "query"),
    "pipelines.selection.sql_files": ("sql",),
    "pipelines.selection.tasks": ("Tasks", "select_tasks"),
    "pipelines.selection.texts": ("fetch_texts",),
    "store.ids": ("messages_json", "prompt_id"),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
