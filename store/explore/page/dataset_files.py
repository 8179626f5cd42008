"""Reads rows of a dataset's files as a model sees them: messages, and the kernels they show."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from store.explore.page.messages import Message, cut_message
from store.explore.page.model import Row

_TEXTS = ("prompt", "completion", "chosen", "rejected")
_BATCH_ROWS = 64
_MOST_CARD_CHARACTERS = 60_000


@dataclass(frozen=True, kw_only=True)
class ShownKernel:
    """A kernel in a row, and what the row says about it."""

    kernel_id: str
    note: str


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """One row of a dataset's files."""

    index: int
    task_id: str | None
    task: str
    tokens: int | None
    messages: Sequence[Message]
    """The prompt and the answers, in their order; each role names its column."""
    kernels: Sequence[ShownKernel]


def find_folder(dataset: Row) -> Path:
    """Return the folder of a dataset; raises FlywheelError if it is not on this machine."""
    if dataset["origin"] is not None or not dataset["path"]:
        raise FlywheelError(
            "the lake does not say where the files of this dataset are",
            "A pulled dataset is described here, and its files stay in their repository.",
        )
    folder = Path(dataset["path"])
    try:
        known = json.loads((folder / "recipe.json").read_text("utf-8"))["dataset_id"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known != dataset["dataset_id"]:
        raise FlywheelError(
            f"{folder} does not have the files of this dataset",
            "They were moved, removed or replaced. The same recipe makes them again.",
        )
    return folder


def read_card(folder: Path) -> str:
    """Return the text of the dataset's card; raises FlywheelError if it has none."""
    try:
        text = (folder / "README.md").read_text("utf-8", errors="replace")
    except OSError as error:
        raise FlywheelError(f"{folder} has no README.md") from error
    return text[:_MOST_CARD_CHARACTERS]


def read_rows(folder: Path, first: int, count: int) -> list[FileRow]:
    """Return some rows of the dataset in a folder, from row `first`.

    Reads the row groups of these rows only. Raises FlywheelError for files that cannot be read.
    """
    import pyarrow as pa

    try:
        found = list(_read_raw(sorted((folder / "data").glob("*/*.parquet")), first, count))
        return [_show_row(first + at, row) for at, row in enumerate(found)]
    except (OSError, KeyError, TypeError, pa.ArrowException) as error:
        raise FlywheelError(f"the files in {folder} cannot be read: {error}") from error


def _read_raw(files: Sequence[Path], first: int, count: int) -> Iterator[Row]:
    """Yield rows by their position over all files."""
    import pyarrow.parquet as pq

    start = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                end = start + file.metadata.row_group(group).num_rows
                if start < first + count and first < end:
                    at = start
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                        skipped = max(0, first - at)
                        wanted = batch.slice(skipped, max(0, first + count - at - skipped))
                        yield from wanted.to_pylist()
                        at += batch.num_rows
                        if at >= first + count:
                            break
                start = end


def _show_row(index: int, row: Row) -> FileRow:
    messages = [
        cut_message(f"{column}, {message['role']}", str(message["content"] or ""))
        for column in _TEXTS
        for message in _list_messages(row.get(column))
    ]
    return FileRow(
        index=index,
        task_id=row.get("task_id"),
        task=str(row.get("task") or row.get("task_id") or ""),
        tokens=row.get("tokens"),
        messages=messages,
        kernels=list(_list_kernels(row)),
    )


def _list_messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a column: a list of them, or one plain text."""
    if isinstance(value, str):
        return [{"role": "text", "content": value}]
    return value or []


def _list_kernels(row: Row) -> Iterator[ShownKernel]:
    shown: Sequence[str] = row.get("exemplar_kernel_ids") or []
    scores: Sequence[float | None] = row.get("exemplar_scores") or [None] * len(shown)
    for kernel_id, score in zip(shown, scores, strict=False):
        note = "exemplar" if score is None else f"exemplar, shown with {score:g}"
        yield ShownKernel(kernel_id=kernel_id, note=note)
    for prefix, name in (("", "completion"), ("chosen_", "chosen"), ("rejected_", "rejected")):
        kernel_id = row.get(f"{prefix}kernel_id")
        if kernel_id:
            score = row.get(f"{prefix}score")
            status = row.get(f"{prefix}status")
            details = [name, "" if score is None else f"{score:g}", status or ""]
            yield ShownKernel(kernel_id=kernel_id, note=", ".join(filter(None, details)))
