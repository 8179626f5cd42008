"""The story of a published figure, step by step, each step one SQL file of store/headlines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store.commandline import echo
from store.errors import UnknownName
from store.lake import sql_files

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.reader import Lake

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: what it says, the SQL that says it, and the rows that came out."""

    title: str
    sentence: str
    """What the rows are; where there are none, why, and what to run."""
    sql: str
    sql_sha256: str
    """Hash of the file: a figure is the answer of this text at a snapshot."""
    rows: pa.Table


@dataclass(frozen=True, kw_only=True)
class Story:
    """All steps of a headline, read at one snapshot of one lake."""

    name: str
    lake_id: str
    snapshot: int
    steps: list[Step]


def story(lake: Lake, name: str = "cuda-l1") -> Story:
    """Run the steps of a headline against a pinned lake, in the order of their file names.

    Raises UnknownName for a headline that there is none of.
    """
    known = {
        folder.name.replace("_", "-"): folder for folder in FOLDER.iterdir() if folder.is_dir()
    }
    if name not in known:
        raise UnknownName.among("headline", name, known)
    steps = [_step(lake, file) for file in sorted(known[name].glob("*.sql"))]
    return Story(name=name, lake_id=lake.lake_id, snapshot=lake.snapshot, steps=steps)


def _step(lake: Lake, file: Path) -> Step:
    asked = sql_files.read_question(file)
    rows = lake.sql(asked.sql).arrow()
    return Step(
        title=asked.title,
        sentence=asked.sentence if rows.num_rows else asked.empty,
        sql=asked.sql,
        sql_sha256=asked.sha256,
        rows=rows,
    )


def write(told: Story, form: str = "table") -> None:
    """Write a story to stdout: as text with a table per step, or as one JSON object."""
    if form == "json":
        steps = [{**vars(step), "rows": step.rows.to_pylist()} for step in told.steps]
        echo.print_json({**vars(told), "steps": steps})
        return
    from store.commandline import display

    for number, step in enumerate(told.steps, start=1):
        echo.print_lines(f"{number}. {step.title}\n{_wrapped(step.sentence)}")
        if step.rows.num_rows:
            display.table(step.rows)
        echo.print_lines(f"{_indented(step.sql)}\n\n")
    echo.print_result(f"Lake {told.lake_id}, snapshot {told.snapshot}.")


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, width=96, initial_indent="   ", subsequent_indent="   ")


def _indented(sql: str) -> str:
    return "\n".join(f"   | {line}" for line in sql.splitlines())
