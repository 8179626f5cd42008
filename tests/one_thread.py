"""One thread for DuckDB and for PyTorch in every test process and in what it starts.

The test processes share the cores already, and the lakes and models of tests are small: threads
that wait for each other take a third of the time of such queries, and half of such training steps.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from typing import Any

import duckdb


def use_one_thread() -> None:
    """Make DuckDB connections of this process, and PyTorch here and below, use one thread.

    Call it before anything imports PyTorch. A judge chooses the threads of its workers itself.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    connect = duckdb.connect

    def connect_with_one_thread(
        *args: Any, config: Mapping[str, Any] | None = None, **options: Any
    ) -> duckdb.DuckDBPyConnection:
        return connect(*args, config={"threads": 1, **(config or {})}, **options)

    duckdb.connect = connect_with_one_thread


if __name__ == "__main__":
    # one_thread.py ROOM …: run a room's command, as `python -m ROOM …` does.
    sys.path[0] = os.getcwd()
    sys.argv = sys.argv[1:]
    use_one_thread()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
