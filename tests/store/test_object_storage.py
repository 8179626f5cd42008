"""A lake with its catalog on PostgreSQL and its data files in a bucket."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import builders
import pytest
from object_storage import BUCKET, READER, ObjectStorage
from postgres_server import PostgresServer

import store
from store.errors import FlywheelError, LakeUnreachable, UnsafeSQL
from store.guard.query_process import QueryProcess
from store.lake import attachment, checksums
from store.lake.data_files import BucketFiles
from store.lake.location import Location
from store.upkeep import integrity, maintenance
from store.writing import spool

NUMBERS = itertools.count()
ROWS = 200  # too many to be inlined


@pytest.fixture
def url(
    server: PostgresServer,
    storage: ObjectStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The URL of a lake that does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in storage.environment().items():
        monkeypatch.setenv(name, value)
    name = f"bucket{os.getpid()}_{next(NUMBERS)}"
    return server.build_url(name, f"s3://{BUCKET}/{name}")


@pytest.fixture(scope="module")
def filled_url(
    server: PostgresServer, storage: ObjectStorage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a lake with rows, which tests do not write to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for name, value in storage.environment().items():
            patch.setenv(name, value)
        name = f"stored{os.getpid()}"
        url = server.build_url(name, f"s3://{BUCKET}/{name}")
        fill(url)
        yield url


def policies(prefix: str) -> dict[str, list[dict[str, str]]]:
    names = [f"{prefix}-{number}" for number in range(ROWS)]
    return {"policies": [{"policy_id": one, "name": one, "kind": "person"} for one in names]}


def fill(url: str) -> int:
    with store.writer(url, author="tests") as writer:
        writer.append({"kernels": [builders.kernel()]}, "inlined")
        writer.append(policies("a"), "in a file")
        return writer.append(policies("b"), "in another file")


def count(url: str, at: int | None = None) -> int:
    with store.open(url, at) as lake:
        row = lake.sql("SELECT count(*) AS n FROM policies").one()
    assert row is not None
    return int(row["n"])


@pytest.mark.slow
def test_rows_are_appended_checked_compacted_and_expired_in_a_bucket(url: str) -> None:
    snapshot = fill(url)
    location = Location.of(url)
    files = checksums.list_files(location)
    assert len(files) == 2
    assert all(one.sha256 for one in files)
    assert maintenance.compact(location).files_after > 0
    assert (count(url), count(url, snapshot - 1)) == (2 * ROWS, ROWS)
    assert integrity.check(location) == []
    with QueryProcess(url.partition("&data=")[0], None) as reader:
        assert reader.ask("SELECT count(*) AS n FROM policies").rows.to_pylist() == [
            {"n": 2 * ROWS}
        ]


@pytest.mark.slow
def test_a_changed_or_missing_file_in_the_bucket_is_named(url: str, storage: ObjectStorage) -> None:
    fill(url)
    location = Location.of(url)
    first, second = checksums.list_files(location)
    assert isinstance(first.files, BucketFiles)
    disk = storage.open_filesystem()
    places = [f"{BUCKET}/{first.files.prefix}/{one.path}" for one in (first, second)]
    with disk.open_input_stream(places[0]) as stream:
        whole = bytearray(stream.read())
    whole[len(whole) // 3] ^= 1
    with disk.open_output_stream(places[0]) as stream:
        stream.write(bytes(whole))
    disk.delete_file(places[1])
    said = [problem.examples[0] for problem in integrity.check(location)]
    assert any("another sha256" in one for one in said)
    assert any("is missing" in one for one in said)
    with pytest.raises(FlywheelError, match="Nothing was compacted"):
        maintenance.compact(location)


@pytest.mark.slow
def test_files_that_a_killed_commit_left_are_listed_and_the_marker_is_not(
    url: str, storage: ObjectStorage
) -> None:
    fill(url)
    location = Location.of(url)
    assert maintenance.list_leftovers(location) == []
    (one, _) = checksums.list_files(location)
    path = "main/policies/ducklake-01a223d6-4674-76d3-a714-fd07b73e4b0d.parquet"
    left = f"{location.files.url}/{path}"
    storage.open_filesystem().copy_file(
        f"{BUCKET}/{location.files.url.rpartition('/')[2]}/{one.path}", left.removeprefix("s3://")
    )
    assert [one.path for one in maintenance.list_leftovers(location)] == [path]
    maintenance.compact(location)  # which spares what is younger than two days
    assert [one.path for one in maintenance.list_leftovers(location)] == [path]


@pytest.mark.slow
def test_user_sql_reads_the_lake_and_no_other_file_of_the_bucket(
    filled_url: str, storage: ObjectStorage
) -> None:
    disk = storage.open_filesystem()
    prefix = Location.of(filled_url).files.url
    for name in (f"{prefix}-2/secret.txt", f"s3://{BUCKET}/secret.txt"):
        with disk.open_output_stream(name.removeprefix("s3://")) as stream:
            stream.write(b"secret")
    hostile = [
        f"FROM read_text('s3://{BUCKET}/secret.txt')",
        f"FROM read_text('{prefix}-2/secret.txt')",
        f"FROM 's3://{BUCKET}/secret.txt'",
        f"FROM glob('s3://{BUCKET}/**')",
        "FROM duckdb_secrets()",
        "FROM which_secret('s3://x', 's3')",
        "FROM duckdb_settings()",
        "SELECT getenv('AWS_SECRET_ACCESS_KEY')",
        "CREATE SECRET mine (TYPE s3, KEY_ID 'a', SECRET 'b')",
        f"COPY policies TO '{prefix}/main/policies/mine.parquet'",
        f"COPY policies TO 's3://{BUCKET}/mine.parquet'",
        f"ATTACH 's3://{BUCKET}/x.duckdb' AS other",
    ]
    with store.open(filled_url) as lake:
        for query in hostile:
            with pytest.raises(UnsafeSQL):
                lake.sql(query)
        for setting in ("s3_secret_access_key", "s3_session_token", "s3_access_key_id"):
            assert lake.run(f"SELECT current_setting('{setting}') AS s").one() == {"s": ""}
        # The second defense, as a statement that slipped through the first would meet it.
        for query in (*hostile[:4], *hostile[-2:]):
            with pytest.raises(Exception, match=r"disabled|Cannot|does not exist"):
                lake._connection.execute(query).fetchall()
        settings = str(lake._connection.execute("FROM duckdb_settings()").fetchall())
        secrets = str(lake._connection.execute("FROM duckdb_secrets()").fetchall())
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in settings + secrets


@pytest.mark.slow
def test_two_lakes_cannot_share_a_prefix(filled_url: str) -> None:
    other = filled_url.replace("schema=", "schema=other_")
    with pytest.raises(LakeUnreachable, match="data files of another lake"):
        store.writer(other, author="tests")
    assert count(filled_url) == 2 * ROWS


@pytest.mark.slow
def test_wrong_buckets_and_credentials_say_what_to_do_and_show_no_secret(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeUnreachable, match="no bucket nowhere"):
        store.writer(url.replace(f"s3://{BUCKET}", "s3://nowhere"), author="tests")
    fill(url)
    writer = store.writer(url, author="tests")
    wrong = "wrong-secret-of-the-tests"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    with pytest.raises(LakeUnreachable, match="aws s3 ls") as refused:
        store.writer(url, author="tests")
    assert wrong not in str(refused.value)
    with store.open(url) as lake, pytest.raises(LakeUnreachable, match="have no right") as failed:
        lake.sql("SELECT max(name) FROM policies").rows()
    assert wrong not in str(failed.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with store.open(url) as lake, pytest.raises(LakeUnreachable, match="Test the network"):
        lake.sql("SELECT max(name) FROM policies").rows()
    with pytest.raises(LakeUnreachable, match="Test the network"):
        store.writer(url, author="tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "")
    writer.close()


@pytest.mark.slow
def test_a_key_that_may_only_read_queries_and_cannot_write(
    url: str, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(url)
    for name, value in storage.environment(READER).items():
        monkeypatch.setenv(name, value)
    assert count(url) == 2 * ROWS
    with store.writer(url, author="tests") as writer, pytest.raises(Exception, match=r"403|DENIED"):
        writer.append(policies("c"), "more")
    waiting = spool.list_files(Location.of(url).spool)
    assert len(waiting) == 1
    for name, value in storage.environment().items():
        monkeypatch.setenv(name, value)
    with store.writer(url, author="tests") as writer:
        writer.flush()
    assert count(url) == 3 * ROWS
    assert integrity.check(Location.of(url)) == []


@pytest.mark.slow
def test_a_connection_reaches_only_its_own_prefix(filled_url: str) -> None:
    connection = attachment.connect(to=Location.of(filled_url))
    try:
        with pytest.raises(Exception, match=r"403|400|resolve|Could not"):
            connection.execute(f"FROM read_text('s3://{BUCKET}/secret.txt')").fetchall()
    finally:
        connection.close()
