"""Opens the SQLite file of a queue: one connection per process, used by one thread at a time."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store import faults, read_sql
from store.errors import FlywheelError
from store.lake.location import Location

FILE = "service.sqlite"
_FORMAT = 1
_WAIT_S = 30.0


class Database:
    """A connection to the queue of a lake. Every method call of its users is one transaction."""

    def __init__(self, location: Location) -> None:
        """Open the file, and create it with its tables where it is missing.

        Raises:
            FlywheelError: the file is damaged, or belongs to a newer version.
        """
        location.root.mkdir(parents=True, exist_ok=True)
        self.file: Path = location.root / FILE
        # Its kernels and token hashes are for the owner alone.
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                self.file, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, _FORMAT):
                raise FlywheelError(
                    f"{self.file} has format {found}, and this version reads {_FORMAT}",
                    "Use the version that wrote it, or move the file away to start an empty queue.",
                )
            self._connection.executescript(read_sql(__file__, "schema"))
            self._connection.execute(f"PRAGMA user_version = {_FORMAT}")
        except sqlite3.DatabaseError as error:
            faults.raise_unless_damage(error, self.file)
            raise FlywheelError(
                f"{self.file} cannot be used: {error}",
                "Move the file away to start an empty queue; verdicts are in the lake.",
            ) from error

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection in a write transaction, which is durable when the block ends."""
        with self._lock, faults.at(self.file):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def read(self, sql: str, parameters: Any = ()) -> list[sqlite3.Row]:
        """Return the rows of one SELECT."""
        with self._lock:
            return self._connection.execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()
