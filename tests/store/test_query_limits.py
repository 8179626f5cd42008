"""`store query` and `store shell`: time, memory, spill and size are bounded; Ctrl-C ends them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import has_ended

import store
from store.bounds import QueryLimits
from store.errors import FlywheelError, LakeNotFound, UnknownName, UnsafeSQL
from store.guard.query_process import QueryProcess

CROSS = "SELECT count(*) FROM range(100000000) AS a, range(100000000) AS b"
DEAF = "SELECT len(list_sort(list_transform(range(100000000), lambda x: hash(x))))"
"""DuckDB does not look for an interrupt while it sorts a list."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Path:
    """Return the folder of a lake."""
    return Path(shutil.copytree(empty_lake, tmp_path_factory.mktemp("limits") / "lake"))


@pytest.fixture
def private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that this test's temporary folders go to."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


@pytest.fixture
def reader(folder: Path, private_folder: Path) -> Iterator[QueryProcess]:
    """Return a process with half a gigabyte."""
    with QueryProcess(str(folder), None, QueryLimits(memory_gb=0.5)) as process:
        yield process


def test_a_process_that_cannot_start_is_no_crash_of_the_query(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "duckdb.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        QueryProcess(str(folder), None, QueryLimits()) as process,
        pytest.raises(FlywheelError, match=r"ended at its start \(exit code 3\)"),
    ):
        process.ask("SELECT 1")


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "query",
    [
        CROSS,
        DEAF,
        *(
            pytest.param(query, marks=pytest.mark.slow)
            for query in (
                "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) "
                "SELECT max(i) FROM n",
                "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
                "SELECT count(*) FROM generate_series(1, 1000000000000)",
                "SELECT list_reduce(range(20000000), lambda x, y: (x + y) % 1000003)",
            )
        ),
    ],
)
def test_a_query_past_its_time_is_ended_whether_or_not_it_heeds_an_interrupt(
    folder: Path, private_folder: Path, query: str
) -> None:
    with QueryProcess(str(folder), None, QueryLimits(timeout=1, memory_gb=0.5)) as asked:
        snapshot = asked.snapshot
        with pytest.raises(FlywheelError, match=r"longer than 1 s\n.*--timeout|more than 0\.5 GB"):
            asked.ask(query)
        # The next question is answered, at the same snapshot.
        asked.limits = replace(asked.limits, timeout=300)
        assert asked.ask("SELECT 1 AS one").rows.to_pylist() == [{"one": 1}]
        assert asked.snapshot == snapshot


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "query",
    [
        "SELECT length(repeat('x', 4000000000))",
        "SELECT length(list(i)) FROM range(2000000000) AS t(i)",
        *(
            pytest.param(query, marks=pytest.mark.slow)
            for query in (
                "SELECT length(string_agg(repeat('x', 1000000))) FROM range(100000)",
                "SELECT length(lpad('x', 600000000, repeat('😀', 1000)))",
                "SELECT len(range(3000000000))",
            )
        ),
    ],
)
def test_a_query_past_its_memory_is_refused(folder: Path, private_folder: Path, query: str) -> None:
    with QueryProcess(str(folder), None, QueryLimits(memory_gb=0.3, timeout=3600)) as asked:
        with pytest.raises(FlywheelError, match=r"0\.3 GB of memory|Out of Range|must be|cannot"):
            asked.ask(query)
        assert asked.ask("SELECT 1 AS one").rows.num_rows == 1


@pytest.mark.slow
def test_spill_goes_to_a_private_folder_is_bounded_and_leaves_nothing(
    folder: Path, private_folder: Path
) -> None:
    sort = (
        "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS r "
        "FROM range(3000000) AS t(i))"
    )
    with QueryProcess(str(folder), None, QueryLimits(memory_gb=0.1)) as asked:
        assert asked.ask(sort).rows.num_rows == 1
        [own] = _list_folders(private_folder)
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    small = QueryLimits(memory_gb=0.1, spill_gb=0.01)
    with (
        QueryProcess(str(folder), None, small) as asked,
        pytest.raises(FlywheelError, match=r"0\.01 GB of disk space .*\n.*--spill-gb"),
    ):
        asked.ask(sort)
    assert not _list_folders(private_folder)


def test_an_answer_is_cut_by_rows_and_refused_by_size(folder: Path, private_folder: Path) -> None:
    with QueryProcess(str(folder), None, QueryLimits(max_rows=25_000)) as asked:
        answer = asked.ask("FROM range(60000)")
        assert (answer.rows.num_rows, answer.cut) == (25_000, True)
        assert answer.rows.column(0).to_pylist()[-1] == 24_999
        assert not asked.ask("FROM range(25000)").cut
    every = QueryLimits(max_rows=0, max_result_gb=0.01)
    with QueryProcess(str(folder), None, every) as asked:
        assert asked.ask("FROM range(60000)").rows.num_rows == 60_000
        with pytest.raises(FlywheelError, match=r"larger than 0\.01 GB\n.*--max-result-gb"):
            asked.ask("SELECT repeat('x', 20000000)")
    with store.open(str(folder), limits=QueryLimits(max_rows=3, timeout=60)) as lake:
        assert lake.sql("FROM range(9)").arrow().num_rows == 3
        with pytest.raises(FlywheelError, match=r"longer than 0\.2 s"):
            lake.sql(CROSS, limits=QueryLimits(timeout=0.2)).rows()


def test_a_query_has_as_many_threads_as_its_limits_say(folder: Path) -> None:
    with store.open(str(folder), limits=QueryLimits(threads=1)) as lake:
        assert lake.run("SELECT current_setting('threads') AS threads").rows() == [{"threads": 1}]


def test_errors_keep_their_kind_across_the_process(folder: Path, private_folder: Path) -> None:
    with QueryProcess(str(folder), None) as asked:
        with pytest.raises(UnsafeSQL, match="DROP"):
            asked.ask("DROP TABLE kernels")
        with pytest.raises(UnknownName, match='no table or view "kernel"'):
            asked.ask("FROM kernel")
        with pytest.raises(FlywheelError, match="Conversion Error"):
            asked.ask("SELECT 'x'::INTEGER")
    with QueryProcess(str(folder / "nowhere"), None) as asked, pytest.raises(LakeNotFound):
        asked.ask("SELECT 1")
    with pytest.raises(FlywheelError, match="positive"):
        QueryLimits(timeout=0)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("setting", ["memory_limit", "threads", "temp_directory", "timeout"])
def test_user_sql_cannot_change_a_limit(reader: QueryProcess, setting: str) -> None:
    for statement in (
        f"SET {setting} = '1TB'",
        f"SET GLOBAL {setting} = '1TB'",
        f"RESET {setting}",
        f"PRAGMA {setting} = '1TB'",
        f"SELECT 1; SET {setting} = '1TB'",
        f"SELECT set_config('{setting}', '1TB', false)",
    ):
        with pytest.raises(FlywheelError):
            reader.ask(statement)
    with pytest.raises(FlywheelError, match=r"more than 0\.5 GB of memory"):
        reader.ask("SELECT length(repeat('x', 4000000000))")


DEEP = "repeat('{\"a\":', 300000) || '1' || repeat('}', 300000)"


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "call",
    [
        "json_merge_patch({deep}, '{{}}')",
        "JSON_MERGE_PATCH('{{}}', {deep})",
        "main.json_structure({deep})",
        '"json_structure"({deep})',
        "({deep}).json_structure()",
        "json_group_structure({deep}::JSON)",
        "json_contains({deep}, '1')",
        "list_transform([{deep}], lambda v: json_contains(v, '1'))",
        "({deep})::JSON::VARIANT",
        "TRY_CAST(({deep})::JSON AS variant)",
        'CAST([({deep})::JSON] AS "VARIANT"[])',
        "variant_typeof(({deep})::JSON)",
        "(SELECT json_structure(v) FROM (SELECT {deep} AS v))",
    ],
)
def test_functions_that_crash_duckdb_are_refused(reader: QueryProcess, call: str) -> None:
    with pytest.raises(UnsafeSQL, match="can crash DuckDB"):
        reader.ask(f"SELECT {call.format(deep=DEEP)}")
    assert reader.ask("SELECT json_extract('{\"a\": 1}', '$.a')::INT AS a").rows.to_pylist() == [
        {"a": 1}
    ]


@pytest.mark.slow
def test_a_crash_of_the_process_is_told_and_outlived(reader: QueryProcess) -> None:
    assert reader.snapshot > 0
    child = reader._child  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(FlywheelError, match=r"crashed on this query \(SIGSEGV\)"):
        reader.ask("SELECT 1")
    assert reader.ask("SELECT 2 AS two").rows.to_pylist() == [{"two": 2}]


PATIENT = (
    "from store.commandline import interrupts; interrupts.GRACE_S = 600; "
    "interrupts.start('store.cli.app')"
)
"""`python -m store` that has the time to clean up after an interrupt on a busy host, too."""


def _start(folder: Path, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PATIENT, *words, "--lake", str(folder)],
        stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _list_folders(place: Path) -> list[Path]:
    """Return the folders of processes that answer queries."""
    return list(place.glob("kernel-flywheel-*/process-*/query-*"))


def _children(process: subprocess.Popen[bytes]) -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


def _wait_until(is_true: Callable[[], object]) -> None:
    until = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)


def _asks(process: subprocess.Popen[bytes]) -> bool:
    """Whether a command has asked: it imports this library while the other process works."""
    return "libarrow.so" in Path(f"/proc/{process.pid}/maps").read_text()


def _read_ticks(pid: int) -> int:
    """Return the processor time that a process has used, in clock ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.skipif(sys.platform != "linux", reason="finds the child in /proc")
@pytest.mark.parametrize("query", [CROSS, DEAF])
def test_ctrl_c_during_a_query_says_one_line_and_leaves_no_process(
    folder: Path, private_folder: Path, query: str
) -> None:
    running = _start(folder, "query", query)
    _wait_until(lambda: _asks(running))
    children = _children(running)
    time.sleep(1)  # in which the query begins
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (130, b"")
    assert err.startswith(b"interrupted")
    assert err.count(b"\n") == 1
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert not _list_folders(private_folder)


@pytest.mark.slow
def test_ctrl_c_while_an_answer_is_printed_says_one_line(
    folder: Path, private_folder: Path
) -> None:
    running = _start(
        folder, "query", "--format", "csv", "SELECT i, repeat('x', 99) FROM range(900000) AS t(i)"
    )
    assert running.stdout is not None
    assert select.select([running.stdout], [], [], 120)[0]
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert (running.returncode, err.count(b"\n")) == (130, 1)
    assert err.startswith(b"interrupted")
    assert not _list_folders(private_folder)


def test_the_process_ends_with_the_one_that_asks(folder: Path, private_folder: Path) -> None:
    running = _start(folder, "query", DEAF)
    _wait_until(lambda: _asks(running))
    children = _children(running)
    time.sleep(1)  # in which the query begins
    running.kill()
    running.communicate()
    assert children
    assert all(map(has_ended, children))


@pytest.mark.slow
def test_the_shell_goes_on_after_ctrl_c_and_after_a_limit(
    folder: Path, private_folder: Path
) -> None:
    running = _start(folder, "shell", stdin=subprocess.PIPE)
    assert running.stdin is not None
    running.stdin.write(f"SELECT 'ready' AS r;\n{CROSS};\nSELECT 'after' AS a;\n".encode())
    running.stdin.flush()
    assert running.stdout is not None
    assert select.select([running.stdout], [], [], 120)[0]
    [child] = _children(running)
    ticks = _read_ticks(child)
    _wait_until(lambda: _read_ticks(child) > ticks + 20)  # of the second query
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0
    assert b"after" in out
    assert err == b"interrupted\n"

    limited = _start(folder, "shell", "--timeout", "1", stdin=subprocess.PIPE)
    _, err = limited.communicate(f"{CROSS};\n{CROSS};\n".encode(), timeout=120)
    assert limited.returncode == 0
    assert err.count(b"longer than 1 s") == 2


@pytest.mark.slow
def test_the_command_says_that_it_cut_and_how_to_get_all(
    folder: Path, private_folder: Path
) -> None:
    words = ("query", "--format", "csv", "--max-rows", "2", "FROM range(5)")
    running = _start(folder, *words)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (0, b"range\n0\n1\n")
    assert err == b"cut after 2 rows; --max-rows 0 gives all\n"
