"""Rows as Python dictionaries: the same as PyArrow's, without pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import store
from store.commandline.display import list_rows

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_rows_are_those_of_pyarrow() -> None:
    utc, local = (
        pa.array([MOMENT, None], pa.timestamp("us", tz=zone)) for zone in ("UTC", "Asia/Tokyo")
    )
    nested = pa.array([[MOMENT], None], pa.list_(pa.timestamp("us", tz="UTC")))
    whole = pa.array([1, 2])
    table = pa.table(
        [utc, local, whole, nested, utc, whole, whole, utc],
        names=["utc", "local", "whole", "nested", "twice", "twice", "again", "again"],
    )
    for rows in (table, table.slice(0, 0), table.slice(1), *table.to_batches(), pa.table({})):
        assert repr(list_rows(rows)) == repr(rows.to_pylist())


@pytest.mark.slow
def test_reading_times_imports_no_pandas(writer: store.Writer, lake_url: str) -> None:
    program = f"""
import sys
import store
with store.open({lake_url!r}) as lake:
    [row] = lake.sql("SELECT now() AS moment").rows()
assert row["moment"].tzinfo is not None
sys.exit("pandas" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_time_that_python_cannot_represent_is_the_text_of_duckdb(writer: store.Writer) -> None:
    with writer.reader() as lake:
        answer = lake.sql(
            "SELECT * FROM (VALUES "
            "(1, TIMESTAMPTZ 'infinity', DATE '20000-01-01', [DATE '-infinity'], now()), "
            "(2, make_timestamptz(0), DATE '2026-01-02', [DATE '2026-01-02'], NULL), "
            "(3, NULL, NULL, NULL, NULL)) AS t(n, moment, day, days, given) ORDER BY n"
        )
        first, second, third = answer.rows()
    day = MOMENT.date()
    assert list(first.values())[:4] == [1, "infinity", "20000-01-01", "[-infinity]"]
    assert isinstance(first["given"], datetime)
    assert list(second.values()) == [2, datetime(1970, 1, 1, tzinfo=UTC), day, [day], None]
    assert list(third.values()) == [3, None, None, None, None]
