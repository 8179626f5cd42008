"""Dataset: its rows as a model sees them, the leakage report, and its card."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from store.explore.page.model import Block, Fact, Page, Panel, Row, Told, View
from store.explore.page.texts import Message, cut_message, read_number

_TEXTS = ("prompt", "completion", "chosen", "rejected")
_BATCH_ROWS = 64
_MOST_CARD_CHARACTERS = 60_000


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


def read_rows(folder: Path, first: int, count: int) -> list[Row]:
    """Return some rows of the dataset in a folder, from row `first`.

    Reads the row groups of these rows only. Raises FlywheelError for files that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows: list[Row] = []
    start = 0
    try:
        for path in sorted((folder / "data").glob("*/*.parquet")):
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    end = start + file.metadata.row_group(group).num_rows
                    if start < first + count and first < end:
                        at = start
                        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group]):
                            skipped = max(0, first - at)
                            shown = batch.slice(skipped, max(0, first + count - at - skipped))
                            rows += shown.to_pylist()
                            at += batch.num_rows
                            if at >= first + count:
                                break
                    start = end
        return [_show_row(first + at, row) for at, row in enumerate(rows)]
    except (OSError, KeyError, TypeError, pa.ArrowException) as error:
        raise FlywheelError(f"the files in {folder} cannot be read: {error}") from error


def _show_row(index: int, row: Row) -> Row:
    """Return a row of the files: its prompt and answers as messages, and the kernels in it."""
    messages: list[Message] = []
    for column in _TEXTS:
        value: Any = row.get(column) or []  # a list of messages, or one plain text
        for message in [{"role": "text", "content": value}] if isinstance(value, str) else value:
            text = str(message["content"] or "")
            messages.append(cut_message(f"{column}, {message['role']}", text))
    shown: Sequence[str] = row.get("exemplar_kernel_ids") or []
    scores: Sequence[float | None] = row.get("exemplar_scores") or [None] * len(shown)
    kernels = [
        {
            "kernel_id": kernel_id,
            "note": "exemplar" if score is None else f"exemplar, shown with {score:g}",
        }
        for kernel_id, score in zip(shown, scores, strict=False)
    ]
    for prefix, name in (("", "completion"), ("chosen_", "chosen"), ("rejected_", "rejected")):
        kernel_id = row.get(f"{prefix}kernel_id")
        if kernel_id:
            score = row.get(f"{prefix}score")
            details = [name, "" if score is None else f"{score:g}", row.get(f"{prefix}status")]
            note = ", ".join(detail for detail in details if detail)
            kernels.append({"kernel_id": kernel_id, "note": note})
    return {
        "index": index,
        "task_id": row.get("task_id"),
        "task": str(row.get("task") or row.get("task_id") or ""),
        "tokens": row.get("tokens"),
        "messages": messages,
        "kernels": kernels,
    }


PATH = "/dataset/{dataset}"
_TABS = {"rows": "Rows", "leakage": "Leakage report", "card": "Card"}
_ROWS = 2


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    dataset = await view.find("dataset", "See Datasets.")
    tab = view.choose_tab(*_TABS)
    blocks: list[Block] = []
    if tab == "rows":
        blocks = [await _build_rows(view, dataset)]
        panels = [
            Panel(name="leakage", tell=_tell_leakage, table="folded"),
            Panel(name="rows", rows=25, hidden=("dataset_id",), table="folded"),
        ]
    elif tab == "leakage":
        panels = [
            Panel(name="leakage", tell=_tell_leakage, is_required=True),
            Panel(name="policies"),
        ]
    else:
        # If there are no files, the recipe says the same.
        with contextlib.suppress(FlywheelError, OSError):
            card = await asyncio.to_thread(
                lambda: (find_folder(dataset) / "README.md").read_text("utf-8", errors="replace")
            )
            card = card[:_MOST_CARD_CHARACTERS]
            blocks = [Block(name="readme", title="Card", template="text", content=card)]
        panels = [Panel(name="recipe", rows=100, is_required=True)]
    return Page(
        kind="Dataset",
        title=dataset["name"],
        facts=[
            Fact(name="Pipeline", text=dataset["pipeline"]),
            Fact(name="Type", text=f"{dataset['dataset_type']}, for {dataset['purpose']}"),
            Fact(name="Rows", text=dataset["rows"]),
            Fact(name="Tokens", text=dataset["tokens"]),
            Fact(name="Read at snapshot", text=str(dataset["snapshot_id"])),
            Fact(name="Content hash", text=dataset["content_hash"][:12]),
        ],
        tabs=_TABS,
        blocks=blocks,
        values={"dataset": dataset["dataset_id"]},
        panels=panels,
    )


async def _build_rows(view: View, dataset: Row) -> Block:
    first = min(read_number(view.get("row")) or 0, dataset["rows"])
    try:
        rows = await asyncio.to_thread(lambda: read_rows(find_folder(dataset), first, _ROWS))
        end = first + _ROWS
        content = {
            "rows": rows,
            "previous": view.change(row=str(max(0, first - _ROWS))) if first else None,
            "next": view.change(row=str(end)) if end < dataset["rows"] else None,
            "error": None,
        }
    except FlywheelError as error:
        content = {"rows": [], "previous": None, "next": None, "error": error}
    return Block(
        name="files",
        title="As a model sees them",
        about="Rows of the dataset's files: the prompt, the answers, and the kernels in them.",
        template="dataset_rows",
        content=content,
    )


def _tell_leakage(rows: list[Row]) -> Told:
    leaks = sum(row["rows"] for row in rows if row["leak"] == "leak")
    withheld = sum(row["withheld"] for row in rows)
    total = sum(row["rows"] for row in rows)
    return (
        f"{leaks:,} of {total:,} rows leak a test task, and {withheld:,} have a withheld kernel.",
        "",
    )
