"""Datasets out of a pinned snapshot: SQL picks the rows, templates make the text.

Pipelines, trainers and tests use the names below; each is imported on first use.
"""

# What is imported for type checkers is what the room exports.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING

from store.exports import load_lazily

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
        fetch_texts,
        has_messages,
        hash_rows,
        preview_dataset,
        record_dataset,
        render_rows,
        select_rows,
        write_dataset,
    )
    from pipelines.datasets.stream import stream
    from pipelines.rendering.messages import (
        describe_sizes,
        fence,
        render,
        render_files,
        render_task,
        template_hash,
    )
    from pipelines.selection.queries import Relation, keep, query, sql
    from pipelines.selection.scores import draw
    from pipelines.selection.tasks import Tasks, select_tasks
    from store.ids import messages_json, prompt_id

__getattr__ = load_lazily(__name__, __file__)
