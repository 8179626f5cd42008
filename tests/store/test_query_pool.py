"""Guarded reading by many clients: attacks on SQL servers, limits, concurrency, disconnects.

The attacks are those that other SQL servers for agents met, and statements that DuckDB's own
settings allow. Every door to user SQL (`store query`, the explorer's console, MCP) uses this
implementation.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import commands
import pytest
from explorer_lakes import open_client

import store
from store.bounds import QueryLimits
from store.errors import FlywheelError, ServerBusy, UnsafeSQL
from store.guard.lake_readers import LakeReaders, Turns
from store.guard.query_process import QueryAnswer, QueryProcess

ENDLESS = "SELECT count(*) FROM range(100000000) AS a, range(100000000) AS b"
POLICIES = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Path:
    """Return the folder of a lake with policies in data files."""
    place = Path(shutil.copytree(empty_lake, tmp_path_factory.mktemp("pool") / "lake"))
    with store.writer(str(place), author="tests") as writer:
        rows = [{"policy_id": f"p{n}", "name": "p", "kind": "person"} for n in range(POLICIES)]
        writer.append({"policies": rows}, "policies")
    return place


def use_pool(
    folder: Path,
    work: Callable[[LakeReaders, int], Awaitable[Any]],
    limits: QueryLimits | None = None,
    turns: tuple[int, int] = (2, 8),
) -> Any:
    """Return what `work` returns, given a pool and the newest snapshot of the lake."""
    with store.open(str(folder)) as lake:
        snapshot = lake.snapshot

    async def run() -> Any:
        location = store.Location.of(str(folder))
        limit = limits or QueryLimits(timeout=600, memory_gb=0.5)
        async with LakeReaders(location, limit, turns=Turns(*turns)) as pool:
            return await work(pool, snapshot)

    return asyncio.run(run())


def read_files(folder: Path) -> dict[Path, bytes]:
    """Return the content of every file of a lake, without the journals of its catalog."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file: file.read_bytes() for file in files if ".sqlite-" not in file.name}


ATTACKS = {
    # What went wrong elsewhere.
    "a statement behind another": "SELECT 1; DROP TABLE policies",
    "a table that a query tool creates": "CREATE TABLE planted AS SELECT 1",
    "a comment that ends a wrapper": "SELECT 1); --",
    "a setting behind a query": "SELECT 1; SET memory_limit = '1TB'",
    "a setting": "SET memory_limit = '1TB'",
    "the reset of a setting": "RESET memory_limit",
    "the configuration lock": "SET lock_configuration = false",
    "external access": "SET enable_external_access = true",
    "a file": "SELECT * FROM read_text('/etc/passwd')",
    "a file by name": "FROM '/etc/passwd'",
    "a file of the lake": "FROM read_parquet('{data}/**/*.parquet')",
    "a copy elsewhere": "COPY (SELECT 1) TO '{outside}/planted.csv'",
    "a database file": "ATTACH '{outside}/planted.duckdb' AS planted",
    "a row": "INSERT INTO policies (policy_id, name, kind) VALUES ('x', 'x', 'person')",
    "a row by the lake's name": "INSERT INTO lake.policies BY NAME SELECT 'x' AS policy_id",
    "an extension to load": "LOAD httpfs",
    "an extension to install": "INSTALL httpfs",
    "an export": "EXPORT DATABASE '{outside}/planted'",
    "expiry": "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "the environment": "SELECT getenv('PATH')",
    # Allowed by DuckDB's settings alone.
    "a copy into the lake": "COPY (SELECT 1 AS x) TO '{data}/x.csv'",
    "a table in memory": "CREATE TABLE memory.z AS SELECT 1",
    "a database in memory": "ATTACH ':memory:' AS other",
    "the catalog by its file": "FROM sqlite_scan('{catalog}', 'ducklake_snapshot')",
    "the catalog attached": "ATTACH 'sqlite:{catalog}' AS stolen",
    "the catalog by its schema": "FROM __ducklake_metadata_lake.ducklake_snapshot",
    "cleanup": "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
}


def test_attacks_on_sql_servers_are_refused_and_change_nothing(
    folder: Path, tmp_path: Path
) -> None:
    location = store.Location.of(str(folder))
    places = {"data": location.data, "catalog": location.catalog, "outside": tmp_path}
    before = read_files(folder)

    async def attack(pool: LakeReaders, snapshot: int) -> list[str]:
        passed: list[str] = []
        for name, template in ATTACKS.items():
            sql = template
            for word, place in places.items():
                sql = sql.replace(f"{{{word}}}", str(place))
            try:
                await pool.query(snapshot, sql)
            except FlywheelError:
                continue
            passed.append(name)
        with pytest.raises(FlywheelError, match=r"more than 0\.5 GB of memory"):
            await pool.query(snapshot, "SELECT length(repeat('x', 4000000000))")
        count = await pool.query(snapshot, "SELECT count(*) AS n FROM policies")
        assert count.rows.to_pylist() == [{"n": POLICIES}]
        return passed

    assert use_pool(folder, attack) == []
    assert read_files(folder) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_limit_on_rows_is_no_text_around_the_query(folder: Path) -> None:
    async def ask(pool: LakeReaders, snapshot: int) -> list[QueryAnswer]:
        tails = ("", ";", "; --", " --", " LIMIT 100000000 -- x", " /* LIMIT 1 */")
        return [await pool.query(snapshot, f"FROM range(100000){tail}") for tail in tails]

    answers = use_pool(folder, ask, QueryLimits(max_rows=7))
    assert [(answer.rows.num_rows, answer.cut) for answer in answers] == [(7, True)] * 6


def test_a_value_that_looks_like_sql_is_a_value(folder: Path) -> None:
    hostile = "p1'; DROP TABLE policies; --"

    async def ask(pool: LakeReaders, snapshot: int) -> QueryAnswer:
        return await pool.query(
            snapshot, "SELECT $a AS a, $b AS b, count(*) AS n FROM policies WHERE policy_id = $a",
            {"a": hostile, "b": 2},
        )  # fmt: skip

    assert use_pool(folder, ask).rows.to_pylist() == [{"a": hostile, "b": 2, "n": 0}]


@pytest.mark.slow
def test_an_answer_is_cut_by_characters_and_a_row_that_is_too_long_is_explained(
    folder: Path,
) -> None:
    limits = QueryLimits(max_chars=1000, max_rows=50)

    async def ask(pool: LakeReaders, snapshot: int) -> tuple[QueryAnswer, QueryAnswer, str]:
        cut = await pool.query(snapshot, "SELECT repeat('é', 20) AS text FROM range(40)")
        whole = await pool.query(snapshot, "SELECT i FROM range(40) AS t(i)")
        with pytest.raises(FlywheelError) as refused:
            await pool.query(snapshot, "SELECT repeat('x', 5000) AS code")
        return cut, whole, str(refused.value)

    cut, whole, refusal = use_pool(folder, ask, limits)
    # A row is {"text": "…"} with 20 escapes of 6 characters.
    assert (cut.rows.num_rows, cut.cut) == (1000 // 132, True)
    assert (whole.rows.num_rows, whole.cut) == (40, False)
    assert refusal == (
        "the first row has 5012 characters, and an answer may have 1000\n"
        "Select fewer columns, or part of a text, such as left(code, 10000)."
    )


@pytest.mark.slow
def test_time_ends_a_query_and_the_next_one_is_answered(folder: Path) -> None:
    async def ask(pool: LakeReaders, snapshot: int) -> QueryAnswer:
        for sql in (ENDLESS, "SELECT len(list_sort(range(200000000)))"):
            with pytest.raises(FlywheelError, match=r"longer than 1 s|GB of memory"):
                await pool.query(snapshot, sql)
        while True:  # a busy host may take longer than a second
            with suppress(FlywheelError):
                return await asyncio.wait_for(pool.query(snapshot, "SELECT 1 AS one"), 120)

    limits = QueryLimits(timeout=1, memory_gb=0.5)
    assert use_pool(folder, ask, limits).rows.to_pylist() == [{"one": 1}]


def list_children() -> list[int]:
    children: list[int] = []
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # of a thread that has ended
            children += map(int, listed.read_text().split())
    return children


async def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="finds the children in /proc")
def test_queries_take_turns_and_too_many_are_refused(folder: Path) -> None:
    before = set(list_children())

    async def ask(pool: LakeReaders, snapshot: int) -> int:
        running = [asyncio.create_task(pool.query(snapshot, ENDLESS)) for _ in range(4)]
        await wait_until(lambda: len(set(list_children()) - before) >= 2)
        await asyncio.sleep(1)
        count = len(set(list_children()) - before)
        with pytest.raises(ServerBusy, match="4 queries are running or waiting\nAsk again"):
            await pool.query(snapshot, "SELECT 1")
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        assert (await pool.query(snapshot, "SELECT 1 AS one")).rows.num_rows == 1
        return count

    assert use_pool(folder, ask, turns=(2, 2)) == 2
    assert set(list_children()) == before


@pytest.mark.slow
def test_a_query_whose_client_is_gone_ends_however_often_it_is_cancelled(folder: Path) -> None:
    async def ask(pool: LakeReaders, snapshot: int) -> list[dict[str, Any]]:
        await pool.query(snapshot, "SELECT 1")  # the process is there
        for wait in (0.0, 0.01, 0.3):
            task = asyncio.create_task(pool.query(snapshot, ENDLESS))
            await asyncio.sleep(wait)
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            # The only process is free again, and its answer is that of this query.
            answer = await pool.query(snapshot, f"SELECT '{wait}' AS wait")
            assert answer.rows.to_pylist() == [{"wait": str(wait)}]
        return (await pool.query(snapshot, "SELECT 7 AS seven")).rows.to_pylist()

    assert use_pool(folder, ask, turns=(1, 8)) == [{"seven": 7}]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the children in /proc")
def test_a_pool_that_closes_ends_its_queries(folder: Path) -> None:
    before = set(list_children())

    async def ask(pool: LakeReaders, snapshot: int) -> asyncio.Task[QueryAnswer]:
        task = asyncio.create_task(pool.query(snapshot, ENDLESS))
        await wait_until(lambda: set(list_children()) > before)
        await asyncio.sleep(1)
        return task

    task = use_pool(folder, ask)
    assert isinstance(task.exception(), FlywheelError)
    assert set(list_children()) == before


@pytest.mark.slow
def test_every_door_refuses_with_the_same_words(folder: Path) -> None:
    refused = ["COPY (SELECT 1) TO '/tmp/planted.csv'", "SELECT 1; SET memory_limit = '1TB'"]
    with QueryProcess(str(folder), None) as process, open_client(folder) as client:
        for sql in refused:
            with pytest.raises(UnsafeSQL) as refusal:
                process.ask(sql)
            ran = commands.run(["store", "query", sql, "--lake", str(folder)], cwd=folder)
            shown = client.get("/sql", params={"sql": sql})
            assert (ran.returncode, shown.status_code) == (1, 400)
            assert refusal.value.message in ran.stderr
            assert refusal.value.message in shown.text


@pytest.mark.slow
def test_the_command_takes_the_same_limits(folder: Path) -> None:
    words = ["query", "SELECT repeat('x', 20) AS t FROM range(9)", "--max-chars", "100"]
    ran = commands.run(
        ["store", *words, "--threads", "1", "--format", "json", "--lake", str(folder)],
        cwd=folder, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert ran.stderr == "cut after 3 rows; --max-chars 0 gives all\n"
    assert len(json.loads(ran.stdout)) == 3
