"""A lake whose catalog is on a PostgreSQL server: the same rows, one committer, clear errors."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import builders
import duckdb
import psycopg
import pytest
from postgres_server import OWNER, PostgresServer

import store
from store import faults
from store.errors import (
    CommitConflict,
    FlywheelError,
    LakeNotFound,
    LakeUnreachable,
    RowsRejected,
    UnsafeSQL,
)
from store.lake.location import SESSION, Location, ServerLocation
from store.upkeep import integrity, maintenance

TASK, KERNEL, DEVICE = builders.task(), builders.kernel(), builders.device()
SIZES = builders.workload(TASK)
JUDGED = builders.evaluation(KERNEL, TASK, SIZES, DEVICE)
BASE = {"tasks": [TASK], "kernels": [KERNEL], "devices": [DEVICE], "workloads": [SIZES]}
NUMBERS = itertools.count()
WRITER = """
import sys, store
url, author, count = sys.argv[1:]
with store.writer(url, author=author) as writer:
    for number in range(int(count)):
        name = f"{author}-{number}"
        rows = {"policies": [{"policy_id": name, "name": name, "kind": "person"}]}
        writer.append(rows, name, bundle_id=name)
        print(name, flush=True)
"""


@pytest.fixture
def url(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a lake that does not exist yet; this host's files for it are in tmp_path."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return server.build_url(f"lake{os.getpid()}_{next(NUMBERS)}", tmp_path / "data")


@pytest.fixture(scope="module")
def filled_url(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a lake with rows, which tests add their own policies to."""
    folder = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        url = server.build_url(f"filled{os.getpid()}", folder / "data")
        fill(url)
        yield url


def fill(url: str) -> list[int]:
    """Append to a new lake; return the snapshots."""
    with store.writer(url, author="tests") as writer:
        arms = builders.session(JUDGED, [1.0, 2.0], eager=[2.0, 4.0])
        return [
            writer.append(BASE, "base"),
            writer.append({"evaluations": [JUDGED], "timings": arms}, "judged"),
        ]


@pytest.mark.slow
@pytest.mark.parametrize("commit", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_lake_on_a_server_answers_as_one_in_a_folder(
    url: str, lake_url: str, commit: int
) -> None:
    with (
        store.open(url, fill(url)[commit]) as on_server,
        store.open(lake_url, fill(lake_url)[commit]) as in_folder,
    ):
        views = [*store.list_views()]
        for name in (*on_server.catalog.tables, *(views[::8] if commit else views)):
            if name in ("lakes", "catalogs", "ingest_log", "file_checksums", "commits"):
                continue  # identities and times of each
            query = f"SELECT * FROM {name} ORDER BY ALL"
            assert on_server.sql(query).rows() == in_folder.sql(query).rows(), name


@pytest.mark.slow
def test_a_load_is_the_first_thing_that_a_host_does(url: str) -> None:
    with store.writer(url, author="tests") as writer:
        rows = {"policies": [{"policy_id": "me", "name": "me", "kind": "person"}]}
        assert writer.load(rows, "load", bundle_id="load") is not None
        assert writer.has_bundle("load")


@pytest.mark.slow
def test_it_is_clean_compacted_and_expired_like_one_in_a_folder(url: str) -> None:
    fill(url)
    location = Location.of(url)
    assert integrity.check(location) == []
    assert maintenance.compact(location).files_after > 0
    assert integrity.check(location) == []
    with pytest.raises(FlywheelError, match="pg_dump"):
        maintenance.backup(location, Path("/nowhere"))


@pytest.mark.slow
def test_rows_are_refused_and_retries_are_harmless(filled_url: str) -> None:
    with store.writer(filled_url, author="tests") as writer:
        before = writer.append(BASE, "base", bundle_id="again")
        assert writer.append(BASE, "base", bundle_id="again") == before
        with pytest.raises(RowsRejected):
            writer.append({"evaluations": [JUDGED | {"status": "perfect"}]}, "wrong")


@pytest.mark.slow
def test_a_holder_whose_session_is_lost_cannot_commit(url: str) -> None:
    fill(url)
    rows = {"policies": [{"policy_id": "late", "name": "late", "kind": "person"}]}
    late, other = store.writer(url, author="late"), store.writer(url, author="other")
    with late, other:
        commit = late._transaction  # what runs under the lock

        def lose_lock_first(*args: object, **words: object) -> object:
            # Another holder takes over after this one has passed its lock.
            with Location.of(url).lock():
                pass
            return commit(*args, **words)  # pyright: ignore

        late._transaction = lose_lock_first  # pyright: ignore
        location = late.location
        assert isinstance(location, ServerLocation)
        location.lock = lambda author: _Nothing()  # pyright: ignore  # its session is gone
        with pytest.raises(LakeUnreachable, match="lost during a commit"):
            late.append(rows, "late")
        with store.open(url) as lake:
            assert lake.sql("SELECT count(*) AS n FROM policies").rows() == [{"n": 0}]
        other.flush()  # the bundle is in the spool of this host
    with store.open(url) as lake:
        assert lake.sql("SELECT count(*) AS n FROM policies").rows() == [{"n": 1}]


@pytest.mark.slow
def test_a_late_commit_of_a_lost_holder_is_a_conflict_and_no_fault_of_the_rows(url: str) -> None:
    # As DuckLake says it; the server ends a commit although its client is gone.
    text = (
        "TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction.\n"
        'Transaction conflict - attempting to create table "dataset_rows" in schema "main" - but '
        "this table has been created by another transaction already"
    )
    conflict = faults.explain(duckdb.TransactionException(text), url)
    assert isinstance(conflict, CommitConflict)
    assert f"has committed to {url} meanwhile" in conflict.message


@pytest.mark.slow
def test_a_writer_locks_in_one_session_and_opens_another_when_it_ends(
    filled_url: str, server: PostgresServer
) -> None:
    target = f"host=127.0.0.1 port={server.port} user={OWNER} dbname=postgres"
    named = f"{SESSION}{os.getpid()}"
    of_writer = "FROM pg_stat_activity WHERE application_name = %s"
    with store.writer(filled_url, author="tests") as writer, psycopg.connect(target) as session:

        def append(name: str) -> int:
            rows = {"policies": [{"policy_id": name, "name": name, "kind": "person"}]}
            writer.append(rows, name)
            (pid,) = session.execute(f"SELECT pid {of_writer}", [named]).fetchall()
            session.rollback()
            return int(pid[0])

        first = append("a")
        assert append("b") == first
        session.execute(f"SELECT pg_terminate_backend(pid) {of_writer}", [named])
        session.rollback()
        assert append("c") != first
        with writer.reader() as lake:
            own = "SELECT count(*) AS n FROM policies WHERE policy_id IN ('a', 'b', 'c')"
            assert lake.sql(own).one() == {"n": 3}


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.slow
def test_writers_that_are_killed_and_a_restart_lose_and_double_nothing(
    url: str, server: PostgresServer
) -> None:
    fill(url)

    def start(author: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, url, author, "12"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    authors = ["a", "b", "c"]
    running = {author: start(author) for author in authors}
    confirmed: set[str] = set()
    for round_number, author in enumerate(authors):
        process = running[author]
        assert process.stdout is not None
        confirmed.add(process.stdout.readline().strip())
        if round_number == 0:
            server.restart()
        else:
            process.send_signal(signal.SIGKILL)
    for process in running.values():
        said, _ = process.communicate(timeout=300)
        confirmed |= set(said.split())
    deadline = time.monotonic() + 300
    for author in authors:  # they are run again, as one would
        process = start(author)
        said, errors = process.communicate(timeout=max(1, deadline - time.monotonic()))
        assert process.returncode == 0, errors
        confirmed |= set(said.split())
    with store.open(url) as lake:
        names = [row["policy_id"] for row in lake.sql("SELECT policy_id FROM policies").rows()]
    assert len(names) == len(set(names)) == 36
    assert confirmed - {""} <= set(names)
    assert integrity.check(Location.of(url)) == []


@pytest.mark.slow
def test_leases_are_seen_from_everywhere(filled_url: str) -> None:
    here, elsewhere = Location.of(filled_url), Location.of(filled_url)
    with here.open_leases() as leases:
        assert leases.take(["a", "b"]) == {"a", "b"}
        assert elsewhere.find_held(["a", "b", "c"]) == {"a", "b"}
        leases.release(["b"])
        assert elsewhere.find_held(["a", "b"]) == {"a"}
    assert elsewhere.find_held(["a", "b"]) == set()


@pytest.mark.slow
def test_user_sql_reaches_neither_the_catalog_nor_the_server(filled_url: str) -> None:
    with store.open(filled_url) as lake:
        for query in (
            "SELECT * FROM postgres_query('__ducklake_metadata_lake', 'SELECT 1')",
            "FROM __ducklake_metadata_lake.pg_catalog.pg_user",
            "ATTACH 'dbname=postgres' AS other (TYPE postgres)",
            "SELECT * FROM postgres_scan('dbname=postgres', 'public', 'x')",
        ):
            with pytest.raises(UnsafeSQL):
                lake.sql(query)


@pytest.mark.slow
def test_wrong_urls_say_what_to_do(
    url: str, server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeNotFound, match="store init"):
        store.open(url)
    fill(url)
    other = url.replace("/data", "/elsewhere")
    with pytest.raises(LakeUnreachable, match="has its data files in"):
        store.open(other)
    with store.open(url.partition("&data=")[0]) as lake:  # the lake knows its folder
        assert lake.sql("SELECT count(*) AS n FROM kernels").rows() == [{"n": 1}]
    for wrong in ("s3://bucket", "s3://bucket/a/../b", "gs://bucket/lake", "s3://B!/lake"):
        with pytest.raises(LakeUnreachable, match="Give"):
            store.open(url.partition("&data=")[0] + f"&data={wrong}")
    with pytest.raises(LakeUnreachable, match="no connection"):
        store.open(url.replace(f":{server.port}", ":1"))
    with pytest.raises(LakeUnreachable, match="not the URL of a lake"):
        store.open("postgresql://host:port/db")
    for secret in ("postgresql://me:hunter2@host/db", "postgresql://host/db?password=hunter2"):
        with pytest.raises(LakeUnreachable, match="PGPASSWORD") as refused:
            store.open(secret)
        assert "hunter2" not in str(refused.value)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LakeUnreachable, match=r"psycopg.*\n.*'\.\[server\]'"):
        store.open(url)
