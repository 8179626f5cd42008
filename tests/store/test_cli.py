"""The `store` command: what it prints where, how it exits, and what it loads."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import builders
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cyclopts import App

import store
from store.cli import app as cli
from store.commandline import display, members
from store.errors import FlywheelError
from store.lake import attachment, location
from store.schema import catalog

ROOT = Path(store.__file__).parents[1]
BIN = Path(sys.executable).parent


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def filled_lake(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Path:
    """Return the folder of a lake with one judged kernel and a tag."""
    folder = tmp_path_factory.mktemp("cli") / "lake"
    shutil.copytree(empty_lake, folder)
    task, kernel, device = builders.task(), builders.kernel(), builders.device()
    sizes = builders.workload(task)
    judged = builders.evaluation(kernel, task, sizes, device)
    with store.writer(str(folder), author="tests") as writer:
        writer.append({"tasks": [task], "kernels": [kernel]}, "a kernel")
        rows = {
            "devices": [device],
            "workloads": [sizes],
            "evaluations": [judged],
            "timings": builders.session(judged, [1.0] * 9, eager=[2.0] * 9),
            "task_labels": [builders.label(task, title="[bold]a title[/bold] \x1b[31m")],
        }
        writer.append(rows, "judged")
    return folder


@pytest.fixture
def run(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Return a function that runs one command line in this process."""
    monkeypatch.setenv("FLYWHEEL_CATALOG", str(ROOT / "catalog.yaml"))
    monkeypatch.delenv("FLYWHEEL_LAKE", raising=False)
    monkeypatch.setattr(logging.root, "handlers", [])

    def run_one(*words: object, stdin: str = "") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            members.run(cli.app, argv=[str(word) for word in words])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(bool(left.code))
        out, err = capsysbinary.readouterr()
        return Ended(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    yield run_one
    for name in ("store", "pipelines", "evaluators", "trainers"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def _commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in app:
        if not name.startswith("-"):
            yield (*path, name), app[name]
            yield from _commands(app[name], (*path, name))


@pytest.mark.slow
def test_every_command_has_help(run: Run) -> None:
    paths = [path for path, _ in _commands(cli.app)]
    assert {"query", "log", "diff", "check", "backup", "show"} <= {path[0] for path in paths}
    assert ("tag", "add") in paths
    for path, app in _commands(cli.app):
        assert app.help, path
        if path[0] != "import":
            ended = run(*path, "--help")
            assert (ended.code, ended.err) == (0, ""), path
            assert "Usage:" in ended.out


def test_results_go_to_stdout(run: Run, filled_lake: Path) -> None:
    ended = run("query", "SELECT count(*) AS kernels FROM kernels", "--lake", filled_lake)
    assert (ended.code, ended.err) == (0, "")
    assert "kernels" in ended.out
    assert "1" in ended.out


@pytest.mark.slow
def test_columns_of_one_name_are_all_there(run: Run, filled_lake: Path) -> None:
    sql = "SELECT 1 AS a, 2 AS a, 3 AS b"
    asked = ("query", sql, "--lake", filled_lake, "--format")
    assert json.loads(run(*asked, "json").out) == [{"a": 1, "a_1": 2, "b": 3}]
    assert run(*asked, "csv").out.splitlines() == ["a,a_1,b", "1,2,3"]
    assert run(*asked, "table").out.split()[:3] == ["a", "a_1", "b"]
    with store.open(str(filled_lake)) as lake:
        assert lake.sql(sql).reader().schema.names == ["a", "a_1", "b"]


@pytest.mark.slow
def test_formats(run: Run, filled_lake: Path, tmp_path: Path) -> None:
    sql = "SELECT arm, samples_ms[:2] AS two, NULL AS nothing FROM timings ORDER BY arm"
    ask = ("query", sql, "--lake", filled_lake, "--format")
    expected = [
        {"arm": "eager", "two": [2.0, 2.0], "nothing": None},
        {"arm": "kernel", "two": [1.0, 1.0], "nothing": None},
    ]
    assert json.loads(run(*ask, "json").out) == expected
    assert run(*ask, "csv").out == ('arm,two,nothing\neager,"[2.0, 2.0]",\nkernel,"[1.0, 1.0]",\n')
    out = tmp_path / "rows.parquet"
    ended = run(*ask, "parquet", "--out", out)
    assert (ended.code, ended.out) == (0, "")
    assert pq.read_table(out).to_pylist() == expected
    target = tmp_path / "rows.json"
    assert run(*ask, "json", "--out", target).out == ""
    assert json.loads(target.read_text()) == expected


@pytest.mark.slow
@pytest.mark.folder
def test_a_row_with_an_impossible_time_is_printed_and_found(
    run: Run, filled_lake: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "lake"
    shutil.copytree(filled_lake, folder)
    connection = attachment.connect()
    attachment.attach(connection, location.Location.of(str(folder)), writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute(f"UPDATE lake.kernels SET created_at = make_timestamptz({-(2**61)})")
    connection.execute("UPDATE lake.evaluations SET created_at = 'infinity'")
    connection.close()
    text = "71101-09-29 (BC) 04:59:46.306048+00"
    asked = ("query", "FROM kernels", "--lake", folder, "--format")
    (row,) = json.loads(run(*asked, "json").out)
    assert row["created_at"] == text
    for form in ("csv", "table"):
        ended = run(*asked, form)
        assert (ended.code, ended.err) == (0, "")
        assert text in ended.out
    for form in ("json", "table"):
        ended = run("show", row["kernel_id"], "--lake", folder, "--format", form)
        assert (ended.code, ended.err) == (0, "")
        assert "infinity" in ended.out
    ended = run("check", "--full", "--lake", folder, "--format", "csv")
    assert ended.code == 3
    assert "kernels,created_at is in the years 1 to 9999" in ended.out
    assert "evaluations,created_at is in the years 1 to 9999" in ended.out


@pytest.mark.slow
def test_numbers_and_bytes_that_json_lacks(run: Run, filled_lake: Path) -> None:
    blob = "unhex('61625c22277fff00')"
    sql = f"SELECT 'nan'::DOUBLE AS a, ['-inf'::FLOAT, 1] AS b, {blob} AS c, {blob}::VARCHAR AS d"
    asked = ("query", sql, "--lake", filled_lake, "--format")
    text = r"ab\x5C\x22\x27\x7F\xFF\x00"
    (row,) = json.loads(run(*asked, "json").out, parse_constant=pytest.fail)
    assert row == {"a": "NaN", "b": ["-Infinity", 1], "c": text, "d": text}
    assert run(*asked, "csv").out == f'a,b,c,d\nnan,"[""-Infinity"", 1.0]",{text},{text}\n'
    assert run(*asked, "table").out.split()[-2:] == [text, text]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("TIMESTAMP '2026-01-02 03:00' - TIMESTAMP '2026-01-01'", "1 day 03:00:00"),
        ("INTERVAL '1 month 2 days 3.5 seconds'", "1 month 2 days 00:00:03.5"),
        ("INTERVAL (-3) HOUR", "-03:00:00"),
        ("'12:00:00+02'::TIMETZ", "12:00:00+02"),
        (f"{2**128 - 1}::UHUGEINT", str(2**128 - 1)),
        ("'101'::BIT", "101"),
    ],
)
def test_values_that_arrow_lacks_read_as_duckdb_prints_them(
    filled_lake: Path, value: str, text: str, form: str
) -> None:
    query = (
        f'SELECT {value} AS v, {value} AS v, [NULL, {value}] AS "in ""lists""", '
        f"{{'a': {value}, 'b': 'INTERVAL'}} AS in_structs, MAP {{'k': {value}}} AS in_maps "
        "FROM range(3) AS t(i) ORDER BY i DESC -- each;"
    )
    with store.open(str(filled_lake)) as lake:
        rows = lake.sql(query)
        handle = io.StringIO()
        display.write_text(rows.arrow(), form, handle)
    [first, *_] = (
        json.loads(handle.getvalue())
        if form == "json"
        else csv.DictReader(io.StringIO(handle.getvalue()))
    )
    named = {name: value if form == "json" else value.strip('"') for name, value in first.items()}
    assert (named["v"], named["v_1"]) == (text, text)
    nested = [named['in "lists"'], named["in_structs"], named["in_maps"]]
    assert [one if form == "json" else json.loads(one) for one in nested] == [
        [None, text],
        {"a": text, "b": "INTERVAL"},
        [["k", text]],
    ]


@pytest.mark.slow
def test_places_and_texts_of_a_wrong_kind_are_named(
    run: Run, filled_lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    file, inside = tmp_path / "file", tmp_path / "file" / "inside"
    on = ("--lake", filled_lake)
    for words, said in [
        (("query", "SELECT '\udcff'", *on), "a query must be valid UTF-8"),
        (("tables", "--lake", file), f"no lake at {file}"),
        (("query", "SELECT 1", "--lake", file), f"no lake at {file}"),
        (("report", "--out", file, *on), f"{file} is not a folder"),
        (("report", "--out", inside, *on), f"{file} is not a folder"),
    ]:
        ended = run(*words)
        assert (ended.code, ended.out) == (1, ""), words
        assert ended.err.startswith(f"error: {said}"), ended.err
    for target, said in ((inside, f"{file} is not a folder"), (Path("/proc/x"), "/proc cannot be")):
        words = ["store", "export", "parquet", str(target), "--lake", str(filled_lake)]
        exported = commands.run(words, cwd=tmp_path)
        assert (exported.returncode, exported.stdout) == (1, "")
        assert exported.stderr.startswith(f"error: {said}")
    assert file.read_text() == "mine"


@pytest.mark.slow
def test_parquet_goes_through_a_pipe(filled_lake: Path) -> None:
    command = [BIN / "store", "query", "FROM timings", "--format", "parquet", "--lake", filled_lake]
    done = subprocess.run(command, capture_output=True, check=True)
    assert pq.read_table(io.BytesIO(done.stdout)).num_rows == 2
    assert done.stderr == b""


def test_stored_text_cannot_drive_the_terminal(run: Run, filled_lake: Path) -> None:
    ended = run("query", "SELECT title FROM task_labels", "--lake", filled_lake)
    assert "\x1b" not in ended.out
    assert "[bold]a title[/bold]" in ended.out


@pytest.mark.slow
def test_sql_may_come_from_standard_input_or_a_file(
    run: Run, filled_lake: Path, tmp_path: Path
) -> None:
    ended = run("query", "--lake", filled_lake, "--format", "csv", stdin="SELECT 1 AS one;\n")
    assert ended.out == "one\n1\n"
    (tmp_path / "question.sql").write_text("SELECT 2 AS two")
    ask = ("query", "--file", tmp_path / "question.sql", "--lake", filled_lake)
    assert run(*ask, "--format", "csv").out == "two\n2\n"


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("query", "DROP TABLE kernels"), "DROP statements cannot be run here"),
        (("query", "-- a comment first\nDROP TABLE kernels"), "DROP statements cannot be run"),
        (("query", "FROM '/etc/passwd'"), "is a file or no name at all"),
        (("query", "FROM kernal"), 'Did you mean "kernels"?'),
        (("query", "SELECT nothing FROM kernels"), "nothing"),
        (("query", "SELECT 1", "--at", "99"), "no snapshot 99; the newest is"),
        (("query", "SELECT 1", "--at", "v9"), '"v9" is not a tag'),
        (("describe", "kernal"), 'Did you mean "kernels"?'),
        (("views", "--sql", "leaderbord"), 'Did you mean "leaderboard"?'),
        (("tag", "add", "7"), "cannot be a tag"),
        (("tag", "rm", "nothing"), 'no tag "nothing"'),
        (("diff", "2", "1"), "Name the older one first"),
        (("diff", "1", "2", "--table", "kernal"), 'Did you mean "kernels"?'),
        (("show", "ffff"), 'no task, kernel or run "ffff"'),
        (("views", "leaderbord"), 'Did you mean "leaderboard"?'),
        (("check", "--catalog", "/nowhere.yaml"), "cannot read the catalog"),
    ],
)
def test_refusals_exit_1_with_a_reason_on_stderr(
    run: Run, filled_lake: Path, words: tuple[str, ...], said: str
) -> None:
    ended = run(*words, "--lake", filled_lake)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: ")
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("tables",), ("log",), ("check",), ("compact",), ("tag", "add", "v1"), ("tag", "list"),
        ("expire", "--older-than-days", "1"), ("diff", "1"), ("backup", "elsewhere"),
        ("query", "SELECT 1"), ("show", "aa"),
    ],
)  # fmt: skip
def test_no_command_makes_a_lake_in_passing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(*words)
    assert (ended.code, ended.out) == (1, "")
    assert f"no lake at {tmp_path / 'lake'}\nMake one with `store import starter`" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_lake_without_its_catalog_is_not_made_anew(
    run: Run, filled_lake: Path, tmp_path: Path
) -> None:
    whole, backup = tmp_path / "whole", tmp_path / "backup"
    shutil.copytree(filled_lake, whole)
    kernels = [builders.kernel(f"k{number}") for number in range(60)]
    with store.writer(str(whole), author="tests") as writer:
        writer.append({"kernels": kernels}, "rows that go to a file")
    assert run("backup", backup, "--lake", whole).code == 0
    for file in whole.glob("catalog.sqlite*"):
        file.unlink()
    before = sorted(whole.rglob("*.parquet"))
    assert before
    for command in ("check", "tables", "init"):
        ended = run(command, "--lake", whole)
        assert (ended.code, ended.out) == (1, "")
        assert (
            f"has lost its catalog: catalog.sqlite is missing, and {len(before)} data" in ended.err
        )
        assert "`store backup`" in ended.err
        assert "store init" not in ended.err
    assert sorted(whole.rglob("*.parquet")) == before
    # What the message says to do helps.
    shutil.rmtree(whole)
    backup.rename(whole)
    assert run("check", "--lake", whole).code == 0


def test_lakes_that_cannot_be_opened_are_refused(run: Run, tmp_path: Path) -> None:
    assert "neither a folder nor postgresql://" in run("tables", "--lake", "s3://bucket/lake").err
    assert "the name of the lake is empty" in run("tables", "--lake", "").err
    (tmp_path / "file").write_text("no lake")
    ended = run("init", "--lake", tmp_path / "file")
    assert (ended.code, f"{tmp_path / 'file'} is a file" in ended.err) == (1, True)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "catalog.sqlite").write_bytes(os.urandom(5000))
    for command in ("tables", "init"):
        ended = run(command, "--lake", tmp_path / "broken")
        assert (ended.code, ended.out) == (1, "")
        assert "catalog.sqlite is damaged, or no database" in ended.err
    ended = run("check", "--lake", tmp_path / "broken")
    assert (ended.code, "the catalog database is whole" in ended.out) == (3, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("qury", "SELECT 1"), 'Did you mean "query"'),
        (("query", "SELECT 1", "--fromat", "csv"), "--format"),
        (("query", "SELECT 1", "--format", "xml"), "xml"),
        (("log", "--limit", "many"), "many"),
        (("log", "--limit", "0"), "--limit"),
        (("log", "--limit", str(2**63)), "--limit"),
        (("tag", "ad", "v1"), 'Did you mean "add"'),
        (("describe",), "TABLE"),
        (("expire",), "--older-than-days"),
    ],
)
def test_usage_exits_2_with_a_suggestion(
    run: Run, filled_lake: Path, words: tuple[str, ...], said: str
) -> None:
    ended = run(*words, "--lake", filled_lake)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


@pytest.mark.parametrize("place", ["", "missing/rows.csv"])
def test_a_path_that_cannot_be_written_is_named_without_a_traceback(
    run: Run, filled_lake: Path, tmp_path: Path, place: str
) -> None:
    out = tmp_path / place
    words = ("query", "SELECT 1", "--format", "csv", "--out", out, "--lake", filled_lake)
    ended = run(*words)
    assert ended.code == 1
    assert f"error: {tmp_path / place.partition('/')[0]} " in ended.err
    assert "Traceback" not in ended.err
    assert "Traceback" in run(*words, "--verbose").err


@pytest.mark.slow
def test_broken_rules_exit_3(run: Run, filled_lake: Path, tmp_path: Path) -> None:
    clean = run("check", "--lake", filled_lake)
    assert (clean.code, clean.err) == (0, "")
    assert clean.out.startswith("clean: ")
    copy = location.FolderLocation(tmp_path / "copy")
    shutil.copytree(filled_lake, copy.root)
    connection = attachment.connect()
    attachment.attach(connection, copy, writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute("INSERT INTO lake.kernels FROM lake.kernels")
    connection.close()
    ended = run("check", "--lake", copy.root, "--format", "json")
    assert ended.code == 3
    assert {problem["table"] for problem in json.loads(ended.out)} == {"kernels"}
    assert "error: " in ended.err


@pytest.mark.slow
def test_snapshots_from_the_command_line(run: Run, filled_lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled_lake, copy)
    at = ("--lake", copy)
    assert run("tag", "add", "v1", "--at", "2", "--note", "first", *at).out == "v1 → snapshot 2\n"
    (tag,) = json.loads(run("tag", "list", "--format", "json", *at).out)
    assert (tag["name"], tag["snapshot"], tag["note"]) == ("v1", 2, "first")
    sql = "SELECT count(*) AS n FROM evaluations"
    assert json.loads(run("query", sql, "--at", "v1", "--format", "json", *at).out) == [{"n": 0}]
    log = json.loads(run("log", "--format", "json", "--limit", "2", *at).out)
    assert [row["snapshot"] for row in log] == [4, 3]
    found = json.loads(run("diff", "v1", "3", "--format", "json", *at).out)
    assert found["rows_added"]["timings"] == 2
    assert (len(found["new_verdicts"]), len(found["verdicts"])) == (1, 0)
    added = run("diff", "v1", "3", "--table", "workloads", "--format", "csv", *at)
    assert len(added.out.splitlines()) == 2
    lines = list(csv.DictReader(io.StringIO(run("diff", "v1", "3", "--format", "csv", *at).out)))
    changes = Counter(line["change"] for line in lines)
    assert changes["rows added"] == len(found["rows_added"])
    assert (changes["new verdict"], changes["changed verdict"]) == (1, 0)
    assert "New verdicts (1)" in run("diff", "v1", *at).out
    again = run("tag", "add", "v1", "3", *at).out
    assert again == "v1 → snapshot 3, moved from snapshot 2\n"
    assert run("tag", "rm", "v1", *at).out == "v1 removed\n"
    assert json.loads(run("tag", "list", "--format", "json", *at).out) == []


@pytest.mark.slow
def test_a_tag_takes_the_snapshot_as_its_second_argument(
    run: Run, filled_lake: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled_lake, copy)
    assert run("tag", "add", "early", "2", "--lake", copy).out == "early → snapshot 2\n"
    assert run("tag", "add", "late", "--at", "3", "--lake", copy).out == "late → snapshot 3\n"


def test_show_says_what_can_be_shown(run: Run, filled_lake: Path) -> None:
    for words in (("show", "nosuch"), ("show", "12ab"), ("show", "\x1b[2J")):
        ended = run(*words, "--lake", filled_lake)
        assert (ended.code, ended.out) == (1, "")
        assert 'error: no task, kernel or run "' in ended.err
        assert (
            "the name of a task, such as level1/9 or L1-9, or of a run, or the first" in ended.err
        )
        assert "hexadecimal" not in ended.err
        assert "\x1b" not in ended.err
    ended = run("show", "nosuch", "--lineage", "--lake", filled_lake)
    assert 'error: no kernel "nosuch"' in ended.err


def test_a_table_is_cut_on_a_terminal_and_whole_in_a_pipe(
    run: Run, filled_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = catalog.load().table("evaluations").about
    assert len(about) > display.SHOWN_CHARACTERS
    assert about in run("tables", "--lake", filled_lake).out
    sql = f"SELECT '{'x' * 300}' AS a, '{'y' * 300}' AS b, 1 AS c"
    ended = run("query", sql, "--lake", filled_lake)
    assert "x" * 300 in ended.out
    assert "y" * 300 in ended.out
    assert "did not fit" not in ended.err
    monkeypatch.setenv("COLUMNS", "80")
    rows = pa.table({"name": ["word " * 9], "about": ["y" * 300], "more": [1]})
    screen = Screen()
    display.print_table(rows, screen)
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, drawn.splitlines())) <= 80
    assert "word word" in drawn
    assert "yyyy…" in drawn
    assert "did not fit" not in drawn


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.slow
def test_expire_says_when_space_is_freed(run: Run, filled_lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled_lake, copy)
    ended = run("expire", "--older-than-days", "0", "--lake", copy)
    assert ended.code == 0
    assert "No disk space is freed yet." in ended.err
    assert "run `store compact` in 24 hours or later" in ended.err
    nothing = run("expire", "--older-than-days", "0", "--lake", copy)
    assert "disk space" not in nothing.err


@pytest.mark.slow
def test_maintenance_from_the_command_line(run: Run, filled_lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled_lake, copy)
    assert run("compact", "--lake", copy).out.startswith("files 0 → ")
    assert run("init", "--lake", copy).code == 0
    planned = run("expire", "--older-than-days", "0", "--dry-run", "--lake", copy)
    assert planned.out.startswith("would expire ")
    assert "the newest" in planned.err
    assert run("expire", "--older-than-days", "0", "--lake", copy).out.startswith("expired ")
    target = tmp_path / "backup"
    assert str(target) in run("backup", target, "--lake", copy).out
    assert run("tables", "--lake", target).code == 0


def test_listings(run: Run, filled_lake: Path) -> None:
    tables = json.loads(run("tables", "--format", "json", "--lake", filled_lake).out)
    assert {row["table"]: row["rows"] for row in tables}["timings"] == 2
    views = json.loads(run("views", "--format", "json").out)
    assert "leaderboard" in {row["view"] for row in views}
    assert all(len(row["about"]) > 10 for row in views)
    about = next(row["about"] for row in views if row["view"] == "verdicts")
    for words in (("views", "verdicts"), ("views", "--sql", "verdicts")):
        shown = run(*words).out
        assert "SELECT" in shown
        assert about[:20] in shown
    columns = json.loads(run("describe", "timings", "--format", "json").out)
    assert {row["column"]: row["unit"] for row in columns}["samples_ms"] == "ms"
    of_view = json.loads(run("describe", "verdicts", "--format", "json", "--lake", filled_lake).out)
    assert {row["column"]: row["about"] for row in of_view}[
        "correct"
    ] == "whether the kernel is correct"
    found = run("describe", "--find", "tokens_per", "--format", "json", "--lake", filled_lake).out
    assert {(row["table"], row["column"]) for row in json.loads(found)} == {
        ("author_costs", "tokens_per_correct"), ("run_costs", "tokens_per_improvement"),
    }  # fmt: skip


@pytest.mark.slow
def test_a_search_for_columns_that_finds_none_fails(run: Run, filled_lake: Path) -> None:
    assert run("describe", "--find", "no such word", "--lake", filled_lake).code == 1


def test_the_shell_answers_until_the_end(run: Run, filled_lake: Path) -> None:
    typed = "SELECT count(*)\n  AS n FROM kernels;\nDROP TABLE kernels;\n.tables\nSELECT 2 AS two"
    ended = run("shell", "--lake", filled_lake, stdin=typed)
    assert ended.code == 0
    assert "error: DROP statements cannot be run here" in ended.err
    for word in (" n ", "timings", "leaderboard", "two"):
        assert word.strip() in ended.out


def test_the_lake_may_come_from_the_environment(
    run: Run, filled_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_LAKE", filled_lake.as_uri())
    assert run("query", "SELECT 1 AS one", "--format", "csv").out == "one\n1\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['store', '--help']\n"
        "from store.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'duckdb', 'pyarrow', 'polars', 'pandas', 'numpy', 'datasets'}\n"
        "sys.exit(f'loaded {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_command_names_the_same_program() -> None:
    for command in ([BIN / "store", "--version"], [sys.executable, "-m", "store", "--version"]):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == store.describe_version()


def test_the_package_is_the_one_of_this_repository() -> None:
    # Tests must not run against an installed copy, nor shadow it by a folder of their own.
    assert Path(store.__file__) == Path(__file__).parents[2] / "store" / "__init__.py"
    packages = (ROOT / "tests").rglob("__init__.py")
    assert not [file for file in packages if "adversarial" not in file.parts]  # candidates' own


def test_an_importer_without_options_has_no_parameter_for_them(tmp_path: Path) -> None:
    file = tmp_path / "flywheel" / "importers" / "plain.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from dataclasses import dataclass\n\n\n"
        "@dataclass(frozen=True)\nclass Config:\n    '''There are no options.'''\n"
    )
    without, having = (
        commands.run(["store", "import", name, "--help"], cwd=tmp_path).stdout
        for name in ("plain", "kernels")
    )
    assert "--tag" in without
    assert "CONFIG" not in without
    assert "--suite" in having


@pytest.mark.parametrize(
    "room",
    [
        "store.importers",
        "store.exporters",
        "pipelines",
        "evaluators",
        "evaluators.detectors",
        "trainers",
        "trainers.rewards",
    ],
)
def test_a_members_file_that_raises_is_named_with_its_exception(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("flywheel") / room.rpartition(".")[2] / "mine.py"
    file.parent.mkdir(parents=True)
    for text, what in (
        ("import os\n\nos.environ['NO_SUCH_NAME']\n", "KeyError: 'NO_SUCH_NAME' (line 3)"),
        ("raise SystemExit(2)\n", "SystemExit: 2 (line 1)"),
    ):
        file.write_text(text)
        with pytest.raises(FlywheelError) as error:
            members.find_member(room, "mine").load()
        assert error.value.message == f"{file} cannot be imported: {what}"
        assert "Correct the file" in str(error.value.hint)


def test_a_members_file_that_raises_is_no_unexpected_error(tmp_path: Path) -> None:
    (tmp_path / "flywheel" / "importers").mkdir(parents=True)
    (tmp_path / "flywheel" / "importers" / "mine.py").write_text("raise ValueError('\\x1b[2J')\n")
    done = commands.run(["store", "import", "mine", "x"], cwd=tmp_path)
    assert done.returncode == 1
    assert "error: flywheel/importers/mine.py cannot be imported: ValueError:" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert "This is a bug" not in done.stderr
