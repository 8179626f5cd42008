"""Progress of long work: lines in a log, a bar on a terminal, silence when asked for."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import store
from store.commandline import echo

ROOT = Path(store.__file__).parent.parent
WORK = """
import sys, time
from store.commandline.echo import show_progress
with show_progress() as progress:
    progress(3, 10, "[b]rows")
    sys.stderr.write("a line of another\\n")
    time.sleep(0.3)
"""


def test_a_log_gets_a_line_with_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with echo.show_progress() as show:
        show(1, 10, "rows")  # too early to say anything
        monkeypatch.setattr(echo, "_LINE_EVERY_S", 0.0)
        show(5, 10, "rows")
        show(10, 10, "rows")
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("rows: 5 of 10, ")
    assert last.startswith("rows: 10 of 10, ")
    assert last.endswith("/s, 0 s left")


def test_quiet_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(echo, "_LINE_EVERY_S", 0.0)
    with echo.show_progress(quiet=True) as show:
        show(5, 10, "rows")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_and_what_others_write_above_it() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    work = subprocess.run(
        [sys.executable, "-c", WORK], stderr=theirs, cwd=ROOT, env=environment, check=True
    )
    os.close(theirs)
    seen = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert work.returncode == 0
    assert "[b]rows" in seen
    assert "3/10" in seen
    assert "a line of another" in seen
