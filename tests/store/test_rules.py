"""Checks answered by Arrow: where they are said to hold, DuckDB says so of every row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from store.schema import arrow_checks, catalog

CHECKS = {
    (table.name, name): check
    for table in catalog.load().tables.values()
    for name, check in table.checks.items()
}
OTHERS = [
    "a > 0", "a >= 1 AND NOT b = 'x'", "a BETWEEN 0 AND 2", "b IN ('x', 'y') OR a IS NOT NULL",
    "a <> 1", "length(b) > 0", "regexp_full_match(b, '[a-z]|x')", "regexp_full_match(b, '.*')",
    "len(c) < 3", "list_max(c) <= 2", "list_min(c) > 0", "isfinite(list_min(c))",
    "(a IS NULL) = (b IS NULL)", "NOT (a > 0 AND b = 'x')", "a < 16777217", "a = 1.5", "b > 'x'",
    "b = a", "a", "a % 2 = 0", "list_max(c) = a", "len(b) = len(c)", "a IS NULL OR c IS NULL",
    "a > NULL", "b NOT IN ('x')", "b LIKE 'x'", "d", "NOT d OR a = 1", "list_contains(c, a)",
]  # fmt: skip
SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.string()), ("c", pa.list_(pa.float32())), ("d", pa.bool_())]
)
FLOATS = st.sampled_from([-1.0, -0.0, 0.5, 1.0, 2.0, 1e30])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-2, 3) | st.just(16777217),
            "b": st.none() | st.sampled_from(["", "x", "y", "xx", "X", "é", "a\n", "\n"]),
            "c": st.none() | st.lists(st.none() | FLOATS, max_size=4),
            "d": st.none() | st.booleans(),
        }
    ),
    max_size=4,
)


def _holds(check: str, given: pa.Table) -> bool:
    """Ask DuckDB whether a check is true for every row."""
    with duckdb.connect() as connection:
        connection.register("given_rows", given)
        query = f"SELECT coalesce(bool_and(coalesce(TRY({check}), false)), true) FROM given_rows"
        try:
            row = connection.execute(query).fetchone()
        except duckdb.Error:
            return False
    return row is not None and bool(row[0])


@pytest.mark.repeats(run=10)
@pytest.mark.parametrize("check", OTHERS)
def test_no_check_holds_that_duckdb_denies(check: str) -> None:
    @settings(max_examples=count_examples(40), deadline=None, database=None, derandomize=True)
    @given(rows=ROWS)
    def check_agreement(rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist(rows, SCHEMA)
        for part in (table, table.slice(1)):
            if arrow_checks.is_surely_passed(check, part):
                assert _holds(check, part), rows

    check_agreement()


def test_checks_of_rows_that_come_often_need_no_query() -> None:
    """Kernels, generations, evaluations and timings: what one judged kernel brings."""
    now = datetime.now(UTC)
    one: dict[str, dict[str, Any]] = {
        "kernels": {"kernel_id": "0" * 64, "code": "x"},
        "generations": {"exemplar_kernel_ids": ["a"], "exemplar_scores": [1.0]},
        "evaluations": {"status": "crash", "reason": "signal", "created_at": now},
        "timings": {"samples_ms": [1.0, 2.0], "blocks": [0, 1]},
    }
    for (table, name), check in CHECKS.items():
        if table in one:
            rows = pa.Table.from_pylist([one[table]], catalog.load().table(table).arrow_schema)
            assert arrow_checks.is_surely_passed(check, rows), name
            assert _holds(check, rows), name
