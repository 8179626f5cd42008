"""Bundles per second of several writer processes on one lake, against raw DuckLake.

python benchmarks/writers.py --lake DIR --writers 8 --bundles 500
python benchmarks/writers.py --lake DIR --writers 8 --bundles 500 --server

Every writer process appends bundles of one judged kernel in three ways. It calls `append` for each
bundle and waits for every commit; it calls `append` for each bundle and waits for every 50th commit
only; or it calls `append_all` for 50 bundles and waits for the commit. Raw DuckLake inserts the
same rows from one process in transactions of 100 bundles, and checks and spools nothing. The clock
starts when all writers have appended a first bundle and have their rows in memory, and stops when
all bundles are committed. Exits with 1 unless every bundle is in the lake exactly once. With
`--server`, the catalogs of both sides are on a PostgreSQL server on loopback that syncs to disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from append import Raw, bundles_of, copy_lake, read_known
from generate import Size, make

import store
from store.lake.location import Location
from store.upkeep.move import move
from store.writing.bundle import Bundle

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer

WAYS = ("append", "append, every 50th waits", "append_all of 50")
TOGETHER = 50
RAW_GROUP = 100


def write(url: str, way: str, number: int, bundles: int) -> None:
    """Append the bundles of one writer; print a line when ready, begin at a given line."""
    rows = bundles_of(bundles, read_known(url), seed=number)
    made = [
        Bundle(bundle_id=f"{way}-{number}-{index}", message="one", tables=dict(tables))
        for index, tables in enumerate(rows)
    ]
    (first,) = bundles_of(1, read_known(url), seed=-2 - number)
    with store.writer(url, author=f"writer {number}") as writer:
        writer.append(first, "first")
        print("ready", flush=True)
        sys.stdin.readline()
        begun = time.process_time()
        if way == WAYS[2]:
            for start in range(0, bundles, TOGETHER):
                writer.append_all(made[start : start + TOGETHER])
        else:
            for index, one in enumerate(made, 1):
                wait = way == WAYS[0] or index % TOGETHER == 0 or index == bundles
                writer.append(one.tables, one.message, bundle_id=one.bundle_id, wait=wait)
        print(time.process_time() - begun, flush=True)


def time_writers(url: str, way: str, writers: int, bundles: int) -> tuple[float, float]:
    """Return the seconds in which all writer processes append their bundles, and those of CPU."""
    command = [sys.executable, __file__, "--write", url, way]
    processes = [
        subprocess.Popen(
            [*command, str(number), str(bundles)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    begun = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.stdout.readline() for process in processes if process.stdout]
    seconds = time.perf_counter() - begun
    if any(process.wait() for process in processes):
        sys.exit("a writer failed")
    return seconds, sum(map(float, said))


def time_raw(url: str, bundles: int) -> float:
    """Return the seconds in which raw DuckLake commits as many bundles."""
    rows = bundles_of(bundles, read_known(url), seed=-1)
    raw = Raw(url)
    begun = time.perf_counter()
    for start in range(0, bundles, RAW_GROUP):
        raw.commit(rows[start : start + RAW_GROUP])
    seconds = time.perf_counter() - begun
    raw.close()
    return seconds


def require_once(url: str, way: str, wanted: int) -> int:
    """Exit unless the lake has every bundle of a way once, with all rows; return the commits."""
    with store.open(url) as lake:
        row = lake.sql(
            "SELECT count(*) AS logged, count(DISTINCT bundle_id) AS bundles, "
            "sum((row_counts ->> 'timings')::INT) AS timings, sum((row_counts ->> 'kernels')::INT) "
            "AS kernels, count(DISTINCT committed_at) AS commits FROM ingest_log "
            "WHERE starts_with(bundle_id, $1 || '-')",
            [way],
        ).one()
    assert row is not None
    commits = int(row.pop("commits"))
    if row != {"logged": wanted, "bundles": wanted, "timings": 2 * wanted, "kernels": wanted}:
        sys.exit(f"{way}: {wanted} bundles were appended, the lake has {row}")
    return commits


def copy_to(made: Path, folder: Path, server: PostgresServer | None) -> str:
    """Copy a lake to a folder, and from there to a server; return its URL."""
    copy_lake(made, folder)
    store.writer(str(folder), author="benchmarks").close()  # to today's catalog
    if server is None:
        return str(folder)
    url = server.build_url(folder.name, folder.with_suffix(".data"))
    move(Location.of(str(folder)), Location.of(url))
    store.writer(url, author="benchmarks").close()
    return url


def compare(url: str, plain: str, way: str, writers: int, bundles: int) -> str:
    """Return the line of the table for one way."""
    # One call per bundle commits a bundle of each writer at a time.
    per_writer = bundles // 10 if way == WAYS[0] else bundles
    total = writers * per_writer
    theirs = min(total, 1000) / time_raw(plain, min(total, 1000))
    seconds, cpu_s = time_writers(url, way, writers, per_writer)
    group = total / require_once(url, way, total)
    ours = total / seconds
    return (
        f"| {writers} | {way} | {total} | {seconds:.1f} | {group:.0f} | {1e3 * cpu_s / total:.2f} "
        f"| {ours:.0f} | {theirs:.0f} | {ours / theirs:.0%} |"
    )


def main() -> None:
    """Time every way on a copy of the lake, or be one of the writers."""
    if sys.argv[1:2] == ["--write"]:
        url, way, number, bundles = sys.argv[2:]
        return write(url, way, int(number), int(bundles))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--writers", type=int, default=8, help="number of writer processes")
    parser.add_argument("--bundles", type=int, default=500, help="number of bundles per writer")
    parser.add_argument("--lake", type=Path, help="use this generated lake instead of making one")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--server", action="store_true", help="put the catalogs on PostgreSQL")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="flywheel-writers-", dir=given.folder) as folder,
        ExitStack() as ends,
    ):
        made = given.lake or Path(folder) / "made"
        if given.lake is None:
            make(str(made), Size(kernels=10_000, evaluations=10_000), say=lambda _: None)
        server = None
        if given.server:
            os.environ["XDG_STATE_HOME"] = folder
            server = PostgresServer(is_durable=True)
            ends.callback(server.end)
        print(
            "| writers | way | bundles | s | bundles in a commit | CPU ms per bundle | bundles/s "
            "| raw DuckLake bundles/s | speed |"
        )
        print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
        for number, way in enumerate(WAYS):
            url, plain = (
                copy_to(made, Path(folder) / f"{name}{number}", server) for name in ("lake", "raw")
            )
            print(compare(url, plain, way, given.writers, given.bundles), flush=True)
    return None


if __name__ == "__main__":
    main()
