"""Dataset: its rows as a model sees them, the leakage report, and its card."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from store.errors import FlywheelError, UnknownName
from store.explore.page.dataset_files import FileRow, find_folder, read_card, read_rows
from store.explore.page.model import Block, Fact, Page, Panel, Row, Tab
from store.explore.page.view import View

PATH = "/dataset/{dataset}"
_TABS = (
    Tab(name="rows", label="Rows"),
    Tab(name="leakage", label="Leakage report"),
    Tab(name="card", label="Card"),
)
_ROWS = 2


@dataclass(frozen=True, kw_only=True)
class FileRows:
    """Rows of the files, and the addresses of the rows before and after them."""

    rows: list[FileRow] = field(default_factory=list[FileRow])
    previous: str | None = None
    next: str | None = None
    error: FlywheelError | None = None
    """Why there are no rows."""


async def build(view: View) -> Page:
    """Return the page; raises UnknownName."""
    dataset = await view.one("dataset/head", dataset=view.parts["dataset"])
    if dataset is None:
        raise UnknownName(f"no dataset {view.parts['dataset'][:80]}", "See Datasets.")
    values = {"dataset": dataset["dataset_id"]}
    tab = view.choose_tab(*(one.name for one in _TABS))
    blocks: list[Block] = []
    if tab == "rows":
        blocks = [await _build_rows(view, dataset)]
        panels = [Panel(name="rows", values=values, rows=25, hidden=("dataset_id",))]
    elif tab == "leakage":
        panels = [
            Panel(name="leakage", values=values, is_required=True),
            Panel(name="policies", values=values),
        ]
    else:
        blocks = await _build_card(dataset)
        panels = [Panel(name="recipe", values=values, rows=100, is_required=True)]
    return Page(
        kind="Dataset",
        title=dataset["name"],
        facts=_list_facts(dataset),
        tabs=_TABS,
        blocks=blocks,
        panels=panels,
    )


def _list_facts(dataset: Row) -> list[Fact]:
    tokens = dataset["tokens"]
    return [
        Fact(name="Pipeline", text=dataset["pipeline"]),
        Fact(name="Type", text=f"{dataset['dataset_type']}, for {dataset['purpose']}"),
        Fact(name="Rows", text=f"{dataset['rows']:,}"),
        *([Fact(name="Tokens", text=f"{tokens:,}")] if tokens is not None else []),
        Fact(name="Read at snapshot", text=str(dataset["snapshot_id"])),
        Fact(name="Content hash", text=dataset["content_hash"][:12]),
    ]


async def _build_rows(view: View, dataset: Row) -> Block:
    text = view.get("row", "0") or "0"
    first = min(int(text), dataset["rows"]) if text.isdecimal() and len(text) < 12 else 0
    try:
        rows = await asyncio.to_thread(_read, dataset, first)
        content = FileRows(
            rows=rows,
            previous=view.change(row=str(max(0, first - _ROWS))) if first else None,
            next=view.change(row=str(first + _ROWS)) if first + _ROWS < dataset["rows"] else None,
        )
    except FlywheelError as error:
        content = FileRows(error=error)
    return Block(
        name="files",
        title="As a model sees them",
        about="Rows of the dataset's files: the prompt, the answers, and the kernels in them.",
        template="dataset_rows",
        content=content,
    )


def _read(dataset: Row, first: int) -> list[FileRow]:
    return read_rows(find_folder(dataset), first, _ROWS)


async def _build_card(dataset: Row) -> list[Block]:
    try:
        card = await asyncio.to_thread(lambda: read_card(find_folder(dataset)))
    except FlywheelError:  # the recipe below says the same
        return []
    return [Block(name="readme", title="Card", template="text", content=card)]
