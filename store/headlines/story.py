"""Derives a published figure step by step; each step is one SQL file of store/headlines."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store.commandline import display, echo
from store.commandline.display import list_rows
from store.errors import UnknownName
from store.lake import sql_files

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.reader import Lake

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Step:
    """One step: its title, its SQL and the resulting rows."""

    title: str
    sentence: str
    """What the rows are; if there are none, why, and what to run."""
    sql: str
    sql_sha256: str
    """Hash of the file: it identifies a figure together with the snapshot."""
    rows: pa.Table


@dataclass(frozen=True, kw_only=True)
class Story:
    """All steps of a headline, read at one snapshot of one lake."""

    name: str
    lake_id: str
    snapshot: int
    steps: list[Step]


def read_story(lake: Lake, name: str = "cuda-l1") -> Story:
    """Run the steps of a headline on a pinned lake, in the order of their file names.

    Raises UnknownName if no headline has the name.
    """
    known = {file.parent.name.replace("_", "-"): file.parent for file in FOLDER.glob("*/*.sql")}
    if name not in known:
        raise UnknownName.among("headline", name, known)
    steps: list[Step] = []
    for file in sorted(known[name].glob("*.sql")):
        query = sql_files.read_question(file)
        rows = lake.sql(query.sql).arrow()
        sentence = query.sentence if rows.num_rows else query.empty
        steps.append(Step(query.title, sentence, query.sql, query.sha256, rows))
    return Story(name=name, lake_id=lake.lake_id, snapshot=lake.snapshot, steps=steps)


def print_story(story: Story, form: str = "table") -> None:
    """Print a story as text with a table for each step, or as one JSON object."""
    if form == "json":
        steps = [{**vars(step), "rows": list_rows(step.rows)} for step in story.steps]
        echo.print_json({**vars(story), "steps": steps})
        return
    for number, step in enumerate(story.steps, start=1):
        sentence = textwrap.fill(
            step.sentence, width=96, initial_indent="   ", subsequent_indent="   "
        )
        echo.print_lines(f"{number}. {step.title}\n{sentence}")
        if step.rows.num_rows:
            display.print_table(step.rows)
        sql = "\n".join(f"   | {line}" for line in step.sql.splitlines())
        echo.print_lines(f"{sql}\n\n")
    echo.print_result(f"Lake {story.lake_id}, snapshot {story.snapshot}.")
