"""Keeps compaction from moving inlined rows into files while a query of another process reads them.

DuckLake plans the files of a table and reads its inlined rows in two steps. With a SQLite catalog,
each step sees the newest state of the catalog, so that rows which move between the two would be in
neither. PostgreSQL gives both steps the same state.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from store.lake.host import READERS
from store.lake.location import FolderLocation, Location

WAIT_S = 10.0
_POLL_S = 0.02


@contextmanager
def hold_inlined_rows(location: Location) -> Generator[None]:
    """Keep inlined rows where they are. Any number of queries may hold them."""
    descriptor = None
    if isinstance(location, FolderLocation):
        with suppress(FileNotFoundError):  # nothing has written to the lake since this lock exists
            descriptor = os.open(location.root / READERS, os.O_RDONLY)
    if descriptor is None:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def wait_for_queries(location: Location) -> Generator[bool]:
    """Wait until no query holds inlined rows; yield whether none does, and let none begin."""
    if not isinstance(location, FolderLocation):
        yield True
        return
    descriptor = os.open(location.root / READERS, os.O_RDONLY | os.O_CREAT, 0o644)
    until = time.monotonic() + WAIT_S
    try:
        while not (is_free := _lock(descriptor)) and time.monotonic() < until:
            time.sleep(_POLL_S)
        yield is_free
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
