"""Ctrl-C during a call of DuckDB, which raises another exception for it than Python."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import duckdb
import pytest
from cyclopts import App

from store.commandline import members
from store.lake import attachment

ENDLESS = "SELECT sum(hash(a.i * b.i)) FROM range(10000000) AS a(i), range(10000000) AS b(i)"


@pytest.fixture(autouse=True)
def _handle_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _interrupt_a_query(connection: duckdb.DuckDBPyConnection) -> None:
    """Run a query without an end, and interrupt this process once DuckDB reports its progress."""
    connection.execute("SET enable_progress_bar = true")
    connection.execute("SET enable_progress_bar_print = false")
    ended = threading.Event()

    def interrupt() -> None:
        while connection.query_progress() < 0:
            if ended.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        connection.execute(ENDLESS)
    finally:
        ended.set()
        thread.join()


def test_a_command_that_is_interrupted_in_duckdb_exits_130_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    app = App(name="room", result_action="return_value")

    @app.command
    def ask() -> None:
        _interrupt_a_query(attachment.connect())

    with pytest.raises(SystemExit) as left:
        members.run(app, argv=["ask"])
    assert left.value.code == 130
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("interrupted; committed rows are kept.")
