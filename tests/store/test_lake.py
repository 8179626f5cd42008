"""Connections to a lake, and what questions cost that bring parameters."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import duckdb
import pytest

import store
from store.lake.attachment import connect


def test_only_the_installed_extensions_go_unverified() -> None:
    with connect() as connection:
        setting = "SELECT current_setting('allow_unsigned_extensions')"
        assert connection.execute(setting).fetchone() == (False,)
        with pytest.raises(duckdb.Error, match="Cannot change"):
            connection.execute("SET allow_unsigned_extensions = true")


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    "value",
    [None, True, 1, -(2**40), 2**64, 0.25, -1e300, float("inf"), "it's", "", "a\0b", [1, 2]],
)
def test_parameters_have_the_types_that_duckdb_gives(lake_url: str, value: object) -> None:
    store.writer(lake_url, author="tests").close()
    query = "SELECT typeof($x) AS type, $x AS value"
    with store.open(lake_url) as lake, closing(duckdb.connect()) as plain:
        expected = plain.execute(query, {"x": value}).fetchall()
        assert [tuple(row.values()) for row in lake.sql(query, {"x": value}).rows()] == expected
        keyword = query.replace("$x", "$limit")
        assert lake.sql(keyword, {"limit": value}).rows()[0]["type"] == expected[0][0]
        positional = query.replace("$x", "$1")
        assert [tuple(row.values()) for row in lake.sql(positional, [value]).rows()] == expected


def test_a_question_with_parameters_does_not_import_pandas(lake_url: str) -> None:
    pytest.importorskip("pandas")
    store.writer(lake_url, author="tests").close()
    script = (
        "import sys, store\n"
        "with store.open(sys.argv[1]) as lake:\n"
        "    lake.sql('SELECT $x AS x', {'x': 1}).arrow()\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script, lake_url], check=True)
