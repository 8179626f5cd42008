"""Bounds of DuckDB's connections: what each may use, the errors at a bound, and abandoned spill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

import pipelines
import store
from store import faults
from store.bounds import QueryLimits, read_bounds
from store.errors import FlywheelError
from store.guard.query_process import QueryProcess
from store.lake.attachment import connect
from store.lake.sql_files import name_query
from store.lake.view_cache import copy_rows

SETTINGS = (
    "SELECT current_setting('memory_limit') AS memory, "
    "current_setting('max_temp_directory_size') AS spill, current_setting('threads') AS threads"
)
SORT = "SELECT r, hash(r) AS h FROM range(3000000) AS t(r) ORDER BY h"
AGGREGATE = "SELECT length(string_agg(r::VARCHAR)) FROM range(30000000) AS t(r)"
SPILLING = """
import sys
from store.lake.attachment import connect
connection = connect()
connection.execute("CREATE TABLE t AS SELECT r, hash(r) AS h FROM range(3000000) AS t(r)")
print("spilled", flush=True)
sys.stdin.readline()
print(connection.execute("SELECT count(DISTINCT h) FROM t").fetchone()[0], flush=True)
"""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this user's processes for temporary data, which only this test uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"kernel-flywheel-{os.getuid()}"


def _read_settings(connection: duckdb.DuckDBPyConnection) -> dict[str, object]:
    [row] = connection.execute(SETTINGS).to_arrow_table().to_pylist()
    return row


def test_every_connection_has_the_bounds_of_the_variables(
    empty_lake: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_MEMORY_GB", "0.5")
    monkeypatch.setenv("FLYWHEEL_SPILL_GB", "2")
    bounds = {"memory": "357.6 MiB", "spill": "1.8 GiB", "threads": 1}
    with closing(connect()) as connection:
        assert _read_settings(connection) == bounds
    opened: list[duckdb.DuckDBPyConnection] = []
    plain = duckdb.connect

    def watch(*args: object, **options: object) -> duckdb.DuckDBPyConnection:
        opened.append(plain(*args, **options))  # pyright: ignore[reportArgumentType]
        return opened[-1]

    lake = str(shutil.copytree(empty_lake, scratch.parent / "lake"))
    with monkeypatch.context() as patch:
        patch.setattr(duckdb, "connect", watch)
        with store.writer(lake, author="tests") as writer, store.open(lake) as reader:
            assert reader.run(SETTINGS).one() == bounds
            assert writer.author == "tests"
            assert [_read_settings(one) for one in opened] == [bounds] * 2
    for limits, memory in (
        (QueryLimits(threads=1), r"0\.37\d* GB"),
        (QueryLimits(threads=1, memory_gb=0.3, spill_gb=1), r"0\.3 GB"),
    ):
        with (
            QueryProcess(lake, None, limits) as process,
            pytest.raises(FlywheelError, match=f"more than {memory} of memory"),
        ):
            process.ask("SELECT length(repeat('x', 4000000000))")
    monkeypatch.delenv("FLYWHEEL_MEMORY_GB")
    monkeypatch.delenv("FLYWHEEL_SPILL_GB")
    with closing(connect()) as connection:
        settings = _read_settings(connection)
        [row] = connection.execute(
            f"SELECT parse_formatted_bytes('{settings['spill']}')::BIGINT"
        ).fetchall()
    assert settings["memory"] == "2.7 GiB"
    assert row[0] == pytest.approx(shutil.disk_usage(scratch).free / 2, rel=0.2)
    for variable in ("FLYWHEEL_MEMORY_GB", "FLYWHEEL_SPILL_GB"):
        for text in ("0", "-1", "inf", "nan", "many"):
            with monkeypatch.context() as patch:
                patch.setenv(variable, text)
                with pytest.raises(FlywheelError, match=f'{variable} is "{text}"'):
                    store.open(lake)


def test_no_connection_prints_a_progress_bar_into_the_output() -> None:
    code = (
        'import duckdb; from store.lake.attachment import connect; print([c.sql("SELECT '
        "current_setting('enable_progress_bar')\").fetchone()[0] for c in (duckdb, connect())])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[True, False]\n"


def test_no_module_opens_a_connection_without_bounds() -> None:
    root = Path(store.__file__).parents[1]
    modules = [
        file
        for room in ("store", "pipelines", "evaluators", "trainers")
        for file in (root / room).rglob("*.py")
        if "duckdb.connect(" in file.read_text("utf-8") and "starter" not in file.parts
    ]
    assert modules
    for file in modules:
        text = file.read_text("utf-8")
        assert text.count("duckdb.connect(") == text.count(".apply(connection, "), file


@pytest.mark.slow
def test_an_error_at_a_bound_names_the_query_the_bound_and_the_option(
    empty_lake: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLYWHEEL_MEMORY_GB", "0.08")
    monkeypatch.setenv("FLYWHEEL_SPILL_GB", "0.005")
    monkeypatch.chdir(tmp_path)
    folder = Path("flywheel/pipelines/sql/mine")
    folder.mkdir(parents=True)
    (folder / "sort.sql").write_text(f"-- Sorts.\n{SORT};\n")
    (folder / "aggregate.sql").write_text(f"-- Aggregates.\n{AGGREGATE}\n")
    with store.open(str(empty_lake)) as lake:
        tries: list[tuple[str, str, str, Callable[[], object]]] = [
            ("sort", "0.005 GB of disk space", "FLYWHEEL_SPILL_GB", lambda: pipelines.query(
                lake, pipelines.sql("mine", "sort"))),
            ("sort", "0.005 GB of disk space", "FLYWHEEL_SPILL_GB", lambda: pipelines.keep(
                lake, pipelines.sql("mine", "sort"))),
            ("aggregate", "0.06 GB of memory", "FLYWHEEL_MEMORY_GB", lambda: pipelines.query(
                lake, pipelines.sql("mine", "aggregate"))),
        ]  # fmt: skip
        for name, bound, option, work in tries:
            with pytest.raises(FlywheelError) as error:
                work()
            assert str(error.value) == (
                f"the query in flywheel/pipelines/sql/mine/{name}.sql needs more than {bound}"
                f"{' for temporary data' if 'disk' in bound else ''}\n"
                f"Ask for less (a filter, fewer columns), or raise {option}."
            )
        with pytest.raises(FlywheelError, match=r"^the query needs .*0\.06 GB of memory"):
            lake.sql(AGGREGATE).rows()
    whole = f"SELECT * FROM ({store.read_view('best_kernels')}\n)"
    assert name_query(whole) == "the query in store/views/best_kernels.sql"


@pytest.fixture
def spilling(scratch: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a process with spilled data, behind some words."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*words, sys.executable, "-c", SPILLING], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=os.environ | {"FLYWHEEL_MEMORY_GB": "0.06"},
        )  # fmt: skip
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"spilled\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_spill_of_a_killed_process_is_removed_at_the_next_start(
    scratch: Path, spilling: Callable[..., subprocess.Popen[bytes]]
) -> None:
    # In a namespace of its own, the second process has a low number that others may have, too.
    isolate = ("unshare", "--pid", "--fork", "--kill-child")
    is_possible = not os.getuid() and shutil.which("unshare")
    killed = spilling()
    [abandoned] = scratch.iterdir()
    living = spilling(*(isolate if is_possible else ()))
    [kept] = set(scratch.iterdir()) - {abandoned}
    assert all(list(folder.glob("spill-*/*")) for folder in (abandoned, kept))
    # Of an earlier version, or of another program.
    (scratch / "1234-abcdef").mkdir()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert list(abandoned.glob("spill-*/*"))
    connect().close()
    assert not abandoned.exists()
    assert kept.exists()
    assert (scratch / "1234-abcdef").exists()
    answer, _ = living.communicate(b"\n", timeout=300)
    assert (answer.splitlines()[-1], living.returncode) == (b"3000000", 0)
    assert not kept.exists()


def test_a_folder_of_another_user_is_not_used(scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o755)
    with closing(connect()) as connection:
        [row] = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    assert not list(scratch.iterdir())
    assert not Path(row[0]).is_relative_to(scratch)


@pytest.mark.parametrize(
    ("query", "bound", "option"),
    [
        (SORT, "4.7 MiB of disk space for temporary data", "FLYWHEEL_SPILL_GB"),
        (AGGREGATE, "57.2 MiB of memory", "FLYWHEEL_MEMORY_GB"),
    ],
)
def test_an_error_of_a_writer_names_the_bound_the_option_and_what_asked(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, query: str, bound: str, option: str
) -> None:
    monkeypatch.setenv("FLYWHEEL_MEMORY_GB", "0.08")
    monkeypatch.setenv("FLYWHEEL_SPILL_GB", "0.005")
    with closing(connect()) as connection, pytest.raises(FlywheelError) as error, faults.at("x"):
        copy_rows(connection, query, scratch / "rows.parquet")
    module = "store/lake/view_cache.py"
    assert error.value.message == f"a query of {module} needs more than {bound}"
    assert option in str(error.value.hint)


@pytest.mark.parametrize("variable", ["FLYWHEEL_MEMORY_GB", "FLYWHEEL_SPILL_GB"])
@pytest.mark.parametrize("size", ["0", "-1", "nan", "inf", "1e99", "1e10", "1,5", ""])
def test_a_size_that_duckdb_does_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, size: str
) -> None:
    monkeypatch.setenv(variable, size)
    with pytest.raises(FlywheelError, match=f"^{variable} is"):
        read_bounds(None)
    with pytest.raises(FlywheelError, match="positive number of at most"):
        store.QueryLimits(memory_gb=1e99)
