"""Runs of digests in the key index: sorted, packed in blocks, and merged where there are many."""

from __future__ import annotations

import bisect
import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator

DIGEST_BYTES = 16
# Two blocks fill one page of SQLite.
BLOCK_DIGESTS = 120
MOST_RUNS = 8
"""A lookup asks each run of a table, so more of them than this are merged."""
MERGED_BLOCKS = 2_000
"""Blocks that are sorted at a time while runs are merged, which limits memory."""


def create_tables(index: sqlite3.Connection) -> None:
    """Create the table of runs, where it is missing."""
    index.execute("CREATE TABLE IF NOT EXISTS _packed (name, run, first, digests)")
    index.execute("CREATE INDEX IF NOT EXISTS _first ON _packed (name, run, first)")


def find_digests(index: sqlite3.Connection, name: str, digests: Iterable[bytes]) -> list[bytes]:
    """Return those of the digests that a run of a table holds."""
    runs = list_runs(index, name)
    return [one for one in digests if any(_is_in_run(index, name, run, one) for run in runs)]


def add_run(index: sqlite3.Connection, name: str, digests: Iterable[bytes]) -> None:
    """Store sorted digests, which come joined in pieces, as a run of their own.

    Merges runs of similar size when there are too many, so that each digest is rewritten a few
    times only however many runs follow.
    """
    _store(index, name, digests)
    runs = list_runs(index, name)
    if len(runs) <= MOST_RUNS:
        return
    sizes = sorted((_count_blocks(index, name, run), run) for run in runs)
    taken, total = 0, 0
    for size, _ in sizes:
        if taken > max(1, len(runs) - MOST_RUNS) and size > 2 * total:
            break
        taken, total = taken + 1, total + size
    _merge(index, name, [run for _, run in sizes[:taken]])


def list_runs(index: sqlite3.Connection, name: str) -> list[int]:
    """Return the numbers of a table's runs."""
    found: list[int] = []
    query = "SELECT min(run) FROM _packed WHERE name = ? AND run > ?"
    while (
        run := index.execute(query, (name, found[-1] if found else -1)).fetchone()[0]
    ) is not None:
        found.append(run)
    return found


def _is_in_run(index: sqlite3.Connection, name: str, run: int, digest: bytes) -> bool:
    row = index.execute(
        "SELECT digests FROM _packed WHERE name = ? AND run = ? AND first <= ? "
        "ORDER BY first DESC LIMIT 1",
        (name, run, digest),
    ).fetchone()
    place = row[0].find(digest) if row else -1
    while place % DIGEST_BYTES and place > 0:  # it straddles two others
        place = row[0].find(digest, place + 1)
    return place >= 0


def _count_blocks(index: sqlite3.Connection, name: str, run: int) -> int:
    query = "SELECT count(*) FROM _packed WHERE name = ? AND run = ?"
    return int(index.execute(query, (name, run)).fetchone()[0])


def _store(index: sqlite3.Connection, name: str, digests: Iterable[bytes]) -> None:
    run = max(list_runs(index, name), default=-1) + 1
    index.executemany(
        "INSERT INTO _packed VALUES (?, ?, ?, ?)",
        ((name, run, block[:DIGEST_BYTES], block) for block in _split_blocks(digests)),
    )


def _split_blocks(digests: Iterable[bytes]) -> Iterator[bytes]:
    size = BLOCK_DIGESTS * DIGEST_BYTES
    rest = b""
    for piece in digests:
        whole = rest + piece if rest else piece
        end = len(whole) - len(whole) % size
        for start in range(0, end, size):
            yield whole[start : start + size]
        rest = whole[end:]
    if rest:
        yield rest


def _merge(index: sqlite3.Connection, name: str, runs: list[int]) -> None:
    """Replace runs by one with their digests."""
    _store(index, name, _sort_digests(index, name, runs))
    index.executemany(
        "DELETE FROM _packed WHERE name = ? AND run = ?", ((name, run) for run in runs)
    )


def _sort_digests(index: sqlite3.Connection, name: str, runs: list[int]) -> Iterator[bytes]:
    """Yield the digests of runs in order, joined in pieces."""
    query = "SELECT first, digests FROM _packed WHERE name = ? AND run = ? ORDER BY first"
    blocks = heapq.merge(*(index.execute(query, (name, run)) for run in runs))
    waiting: list[bytes] = []
    while some := list(itertools.islice(blocks, MERGED_BLOCKS)):
        waiting += [
            block[start : start + DIGEST_BYTES]
            for _, block in some
            for start in range(0, len(block), DIGEST_BYTES)
        ]
        waiting.sort()  # fast, because each block is sorted
        # Later blocks hold nothing below the first digest of the last one.
        end = bisect.bisect_left(waiting, some[-1][0])
        yield b"".join(waiting[:end])
        del waiting[:end]
    yield b"".join(waiting)
