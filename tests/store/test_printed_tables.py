"""What tables look like at widths of terminals, in `printed/NAME.txt`; run this file to renew it.

`python tests/store/test_printed_tables.py` writes the files. Read their diff before a commit.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import store

sys.path.append(str(Path(__file__).parent.parent))
from new_lakes import copy_starter_lake

from store.cli import app
from store.cli.show import print_page
from store.commandline import display
from store.commandline.members import Common
from store.dossier.pages import read_page
from store.lake import sql_files
from store.upkeep import history

PRINTED = Path(__file__).parent / "printed"
WIDTHS = (80, 100, 120, 200)
_RUN = "SELECT run_id FROM runs WHERE kind = 'evaluation' ORDER BY ALL LIMIT 1"
_PAINT = re.compile(r"\x1b\[[0-9;]*m")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\b\d\d:\d\d(:\d\d)?\b")


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def query(sql: str) -> Callable[[str], Callable[[], None]]:
    def ask(lake_url: str) -> Callable[[], None]:
        with store.open(lake_url) as lake:
            rows = lake.sql(sql).arrow()
        keys = sql_files.find_key_columns(sql, rows.column_names)
        return lambda: display.write_rows(rows, "table", keys=keys)

    return ask


def show(name: str) -> Callable[[str], Callable[[], None]]:
    def read(lake_url: str) -> Callable[[], None]:
        with store.open(lake_url) as lake:
            run = lake.sql(_RUN).one()
            assert run is not None
            page = read_page(lake, name or run["run_id"])
        return lambda: print_page(page, "table")

    return read


COMMANDS: dict[str, Callable[[str], Callable[[], None]]] = {
    "best_kernels": query("FROM best_kernels ORDER BY ALL LIMIT 12"),
    "leaderboard": query("FROM leaderboard ORDER BY ALL LIMIT 12"),
    "suspects": query("FROM suspects ORDER BY ALL LIMIT 12"),
    "unranked_sessions": query("SELECT * FROM unranked_sessions ORDER BY ALL LIMIT 12"),
    "show_task": show("diag_matmul"),
    "show_kernel": show("82db91c18745"),
    "show_run": show(""),
    "log": lambda lake_url: lambda: app.log(common=Common(lake=lake_url)),
}
"""For each, a function that reads a lake and returns one that prints."""


@pytest.fixture(scope="module")
def lake_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tag_starter_lake(tmp_path_factory.mktemp("printed"))


def tag_starter_lake(folder: Path) -> str:
    url = copy_starter_lake(folder / "lake")
    with store.writer(url, author="store tag") as writer:
        history.add_tag(writer, "v1", None, None)
    return url


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_its_file(name: str, lake_url: str) -> None:
    assert print_at_all_widths(name, lake_url) == (PRINTED / f"{name}.txt").read_text("utf-8")


@pytest.mark.repeats(run=4)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["best_kernels", "leaderboard", "suspects", "unranked_sessions"])
def test_key_columns_are_never_dropped(name: str, width: int, lake_url: str) -> None:
    keys = sql_files.read_key_columns(sql_files.read_view(name))
    assert keys
    out, err = print_at(width, name, lake_url)
    assert max(map(len, out.splitlines())) <= width
    assert not re.search(r"^\S", out, re.MULTILINE)
    left_out = err.partition("columns that did not fit:")[2].partition("left out")[0]
    assert not {*keys} & {*re.findall(r"\w+", left_out)}


@pytest.mark.slow
def test_key_columns_are_columns(lake_url: str) -> None:
    with store.open(lake_url) as lake:
        for view in sql_files.list_views():
            columns = [row["column_name"] for row in lake.run(f"DESCRIBE {view}").rows()]
            assert {*sql_files.read_key_columns(sql_files.read_view(view))} <= {*columns}, view


def test_statuses_have_colors_unless_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows = pa.table({"status": ["correct", "incorrect"], "note": ["correct", ""]})
    screen = Screen()
    display.print_table(rows, screen)
    assert screen.getvalue().count("\x1b[32m") == 1
    assert screen.getvalue().count("\x1b[31m") == 1
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    display.print_table(rows, screen)
    assert "\x1b[32m" not in screen.getvalue()


def test_few_rows_of_many_columns_become_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    display.print_table(pa.table({f"column_{n}": ["word " * 9] for n in range(9)}), screen)
    lines = _PAINT.sub("", screen.getvalue()).splitlines()
    assert lines[0].startswith(" 1 ──")
    assert [line.split()[0] for line in lines if line.startswith(" column")] == [
        f"column_{n}" for n in range(9)
    ]
    assert max(map(len, lines)) <= 40


def test_an_answer_prints_its_table(lake_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with store.open(lake_url) as lake:
        shown = repr(lake.sql("FROM leaderboard"))
        assert shown.split()[:5] == ["p50_", "p50_", "suite", "level", "device"]
        assert max(map(len, shown.splitlines())) <= 80
        assert repr(lake.sql("FROM range(1000)")).endswith("\nthe first 100 rows")
        text = "SELECT '<b>&' AS \"<i>\", 1.5 AS n"
        assert vars(type(lake.sql(text)))["_repr_html_"](lake.sql(text)) == (
            "<table><thead><tr><th>&lt;i&gt;</th><th>n</th></tr></thead>"
            "<tbody><tr><td>&lt;b&gt;&amp;</td><td>1.5</td></tr></tbody></table>"
        )


def print_at_all_widths(name: str, lake_url: str) -> str:
    parts: Iterator[str] = (
        f"=== {width} columns\n{out}--- notes\n{err}" if err else f"=== {width} columns\n{out}"
        for width in WIDTHS
        for out, err in [print_at(width, name, lake_url)]
    )
    return "".join(parts)


def print_at(width: int, name: str, lake_url: str) -> tuple[str, str]:
    """Return what a command prints on a terminal, and its notes, with the same time everywhere."""
    out, err = Screen(), Screen()
    place = {"COLUMNS": str(width), "NO_COLOR": "1"}
    with patch.dict(os.environ, place), redirect_stdout(out), redirect_stderr(err):
        read(name, lake_url)()
    return read_screen(out), read_screen(err)


@cache
def read(name: str, lake_url: str) -> Callable[[], None]:
    return COMMANDS[name](lake_url)


def read_screen(screen: Screen) -> str:
    text = _DAY.sub("2026-01-01", _PAINT.sub("", screen.getvalue()))
    text = _TIME.sub(lambda time: re.sub(r"\d", "0", time[0]), text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        url = tag_starter_lake(Path(folder))
        PRINTED.mkdir(exist_ok=True)
        for command in COMMANDS:
            (PRINTED / f"{command}.txt").write_text(print_at_all_widths(command, url), "utf-8")
