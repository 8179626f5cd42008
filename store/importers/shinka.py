"""Programs of a ShinkaEvolve search: evolution_db.sqlite, or a database of any other name.

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
from store.foreign import left_out, sqlite
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
    for file in _find_databases(path):
        return f"{file.name}: table programs with combined_score"
    return None


def _find_databases(root: Path) -> Iterator[Path]:
    # Some versions name the file None.
    for file in sources.list_below(root, "*"):
        if sqlite.is_sqlite(file):
            with left_out.errors():
                columns = sqlite.list_columns(file, TABLE)
                if {"code", "combined_score", "island_idx"} <= set(columns):
                    yield file
                else:
                    left_out.get_record().note_unread(file, f"no table {TABLE} of ShinkaEvolve")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the programs of each database in bundles."""
    root = sources.require_path(path, "evolution_db.sqlite of ShinkaEvolve, or its folder")
    files = list(_find_databases(root))
    if not files and not left_out.get_record().rows:
        raise ImportFailed(
            f"{root} holds no SQLite database with the table {TABLE} of ShinkaEvolve",
            "Name the folder of the search's results, or its database.",
        )
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
        yield Fields(values=row, where=f"{file}, program {number}")


def _add(programs: pieces.ProgramRows, rows: pieces.BundleRows, row: Fields) -> None:
    identity, correct = row.require_text("id"), row.flag("correct")
    metrics = row.inner("public_metrics")
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
    rows.add_result(attempt, correct, quote, gpu=programs.config.gpu)
    score = Fields(values={pieces.SCORE: row.values["combined_score"]}, where=row.where)
    programs.add_metrics(rows, attempt, score, quote)
    programs.add_metrics(rows, attempt, metrics, quote)
