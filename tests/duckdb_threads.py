"""One thread for every DuckDB connection of a test process.

The test processes share the cores already, and the lakes of tests are small: threads that wait for
each other take a third of the time of such queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb


def use_one_thread() -> None:
    """Make every connection that this process opens from now on use one thread by default."""
    connect = duckdb.connect

    def connect_with_one_thread(
        *args: Any, config: Mapping[str, Any] | None = None, **options: Any
    ) -> duckdb.DuckDBPyConnection:
        return connect(*args, config={"threads": 1, **(config or {})}, **options)

    duckdb.connect = connect_with_one_thread
