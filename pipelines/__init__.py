"""Datasets out of a pinned snapshot: SQL picks the rows, templates make the text.

Pipelines, trainers and tests use the names below; each is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipelines.contract import (
        Baseline,
        DrawOptions,
        Evidence,
        ExemplarOptions,
        Kernel,
        Message,
        Purpose,
        Request,
        Row,
        Selection,
        Strategy,
        Task,
        copy_exemplar_options,
    )
    from pipelines.datasets.job import Dataset, Job, make_counter
    from pipelines.datasets.materialize import (
        has_messages,
        hash_rows,
        preview_dataset,
        render_rows,
        select_rows,
        write_dataset,
    )
    from pipelines.datasets.record import record_dataset
    from pipelines.datasets.stream import stream
    from pipelines.rendering.templates import (
        describe_sizes,
        fence,
        render,
        render_files,
        render_task,
        template_hash,
    )
    from pipelines.selection.draws import draw
    from pipelines.selection.queries import Relation, keep, query, sql
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
    "stream",
    "template_hash",
    "write_dataset",
]

_MODULES = {
    "pipelines.contract": (
        "Baseline",
        "Evidence",
        "DrawOptions",
        "ExemplarOptions",
        "Strategy",
        "copy_exemplar_options",
        "Purpose",
        "Request",
        "Kernel",
        "Message",
        "Row",
        "Selection",
        "Task",
    ),
    "pipelines.datasets.materialize": (
        "has_messages",
        "hash_rows",
        "preview_dataset",
        "render_rows",
        "select_rows",
        "write_dataset",
    ),
    "pipelines.datasets.job": (
        "Dataset",
        "Job",
        "make_counter",
    ),
    "pipelines.datasets.record": ("record_dataset",),
    "pipelines.datasets.stream": ("stream",),
    "pipelines.rendering.templates": (
        "describe_sizes",
        "fence",
        "render",
        "render_files",
        "render_task",
        "template_hash",
    ),
    "pipelines.selection.draws": ("draw",),
    "pipelines.selection.queries": (
        "Relation",
        "keep",
        "query",
        "sql",
    ),
    "pipelines.selection.tasks": (
        "Tasks",
        "select_tasks",
    ),
    "pipelines.selection.texts": ("fetch_texts",),
    "store.ids": (
        "messages_json",
        "prompt_id",
    ),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
