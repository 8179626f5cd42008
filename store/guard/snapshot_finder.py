"""Finds the snapshot that a request of a server names."""

from __future__ import annotations

import threading

from store.lake import attachment
from store.lake.location import Location


class SnapshotFinder:
    """Finds snapshots by tag, number or time, on a connection that is not pinned.

    Threads may share it.
    """

    def __init__(self, location: Location) -> None:
        self._connection = attachment.connect(to=location)
        attachment.attach(self._connection, location, name="newest")
        self._lock = threading.Lock()

    def resolve(self, at: str | None) -> int:
        """Return the number of a snapshot; None is the newest. Raises SnapshotNotFound."""
        with self._lock:
            return attachment.resolve_snapshot(self._connection, at, name="newest")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
