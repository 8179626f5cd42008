"""Programs of a ShinkaEvolve search: evolution_db.sqlite or programs.sqlite.

Reads the table programs as shinka-evolve 0.0.7 writes it, read-only and with limits; views,
triggers and virtual tables of the file are never run. A program becomes a kernel and an attempt
whose parent is the program that it was mutated from. Its verdict, its combined_score and the
figures in public_metrics become claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import store
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign import sqlite, text_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "shinka"
TABLE = "programs"
COLUMNS = (
    *("id", "code", "language", "parent_id", "generation", "timestamp", "combined_score"),
    *("public_metrics", "text_feedback", "correct", "island_idx"),
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.ProgramOrigin):
    policy: AuthorOption = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "*.sqlite", "*.db", "*/*.sqlite"):
        if sqlite.is_sqlite(file) and {"code", "combined_score", "island_idx"} <= set(
            sqlite.list_columns(file, TABLE)
        ):
            return f"{file.name}: table programs with combined_score"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the programs of each database in bundles."""
    root = sources.require_path(path, "evolution_db.sqlite of ShinkaEvolve, or its folder")
    listed = sources.list_files(root, "*.sqlite", "*.db", "*/*.sqlite")
    files = [file for file in listed if sqlite.is_sqlite(file)]
    if not files:
        raise ImportFailed(f"{root} holds no SQLite database", "Name evolution_db.sqlite itself.")
    reading = pieces.Import(lake, NAME, config)
    for file in files:
        problem = config.problem or file.resolve().parent.name
        yield from reading.read(
            [pieces.open_documents(None, [file], root, _parse)],
            lambda problem=problem: partial(
                _add, pieces.ProgramRows(reading, problem, config.entry_point)
            ),
        )


def _parse(file: Path) -> Iterator[Fields]:
    rows = sqlite.read_rows(file, TABLE, COLUMNS, ("generation", "timestamp", "id"))
    for number, row in enumerate(rows):
        where = f"{file}, program {number}"
        text = row["public_metrics"]
        parsed = text_files.parse_json(text, f"{where}, public_metrics") if text else None
        row["public_metrics"] = parsed
        yield Fields(values=row, where=where)


def _add(programs: pieces.ProgramRows, rows: pieces.BundleRows, row: Fields) -> None:
    identity = row.require_text("id")
    attempt = programs.add(
        rows,
        identity,
        [programs.problem, identity],
        kernel_id=programs.add_code(rows, row.code("code"), row.text("language")),
        parent=row.text("parent_id"),
        turn=row.whole("generation"),
        analysis=row.prose("text_feedback"),
        created_at=row.moment("timestamp"),
    )
    quote = f"program {identity} of {programs.problem}"
    rows.add_result(attempt, row.flag("correct"), quote, gpu=programs.config.gpu)
    score = Fields(values={pieces.SCORE: row.values["combined_score"]}, where=row.where)
    programs.add_metrics(rows, attempt, score, quote)
    programs.add_metrics(rows, attempt, row.inner("public_metrics"), quote)
