"""Databases of ShinkaEvolve, and SQLite files made to attack."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from import_sources import count, import_source, kernel, query

from store.errors import ImportFailed
from store.importers import shinka
from store.importers.reading import sources

SCHEMA = """CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT NOT NULL, language TEXT NOT NULL,
parent_id TEXT, generation INTEGER NOT NULL, timestamp REAL NOT NULL, combined_score REAL,
public_metrics TEXT, text_feedback TEXT, correct BOOLEAN DEFAULT 0, island_idx INTEGER)"""


def write_database(file: Path, *statements: str) -> Path:
    """Write a database with two programs, then run statements on it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        ("a", kernel(1), "python", None, 0, 1.0, 0.5, '{"time_ms": 2.0, "note": "x"}', "", 1, 0),
        ("b", kernel(2), "python", "a", 1, 2.0, 0.9, None, "Faster.", 0, 0),
    ]
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(SCHEMA)
        database.executemany(f"INSERT INTO programs VALUES ({', '.join('?' * 11)})", rows)
        for statement in statements:
            database.execute(statement)
    return file


def test_programs_have_their_parents_and_scores_are_claims(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    file = write_database(tmp_path / "results_relu/evolution_db.sqlite")
    import_source(lake, shinka, file)
    chain = query(
        lake,
        "SELECT child.turn, parent.turn AS before, child.problem FROM generations AS child "
        "LEFT JOIN generations AS parent ON parent.generation_id = child.parent_generation_id "
        "ORDER BY child.turn",
    )
    assert chain == [(0, None, "results_relu"), (1, 0, "results_relu")]
    assert query(lake, "SELECT metric, value FROM claims ORDER BY ALL") == [
        ("combined_score", 0.5),
        ("combined_score", 0.9),
        ("correct", 0.0),
        ("correct", 1.0),
        ("reported_time_ms", 2.0),
    ]
    assert import_source(lake, shinka, file).rows == {}
    assert list(sources.detect(file)) == ["shinka"]


@pytest.mark.slow
def test_metrics_may_be_bytes_or_blank_and_others_cost_their_program(tmp_path: Path) -> None:
    stored = ("CAST('{\"time_ms\": 3.0}' AS BLOB)", "' '")
    update = "UPDATE programs SET public_metrics = {} WHERE id = '{}'"
    file = write_database(
        tmp_path / "results/None", *(update.format(*one) for one in zip(stored, "ab", strict=True))
    )
    assert import_source(tmp_path / "lake", shinka, file).left_out == 0
    times = query(tmp_path / "lake", "SELECT value FROM claims WHERE metric = 'reported_time_ms'")
    assert times == [(3.0,)]
    odd = write_database(tmp_path / "odd/None", update.format("5.5", "a"))
    assert import_source(tmp_path / "lake", shinka, odd).left_out == 1


def test_databases_made_to_attack_are_refused(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    hostile = {
        "view": (
            "ALTER TABLE programs RENAME TO real",
            "CREATE VIEW programs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
            "FROM n) SELECT i AS id, 'x' AS code FROM n",
        ),
        "json": ('UPDATE programs SET public_metrics = \'{"a": 1, "a": 2}\'',),
        "blob": ("UPDATE programs SET code = zeroblob(100000000)",),
        "type": ("UPDATE programs SET correct = 'maybe'",),
    }
    for name, statements in hostile.items():
        file = write_database(tmp_path / f"{name}.sqlite", *statements)
        with pytest.raises(ImportFailed):
            import_source(lake, shinka, file)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    with pytest.raises(ImportFailed, match="cannot be read as a SQLite database"):
        import_source(lake, shinka, broken)
    assert count(lake, "kernels") == 0
