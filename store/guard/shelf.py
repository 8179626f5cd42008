"""Keeps readers of a few snapshots open between requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

IDLE = 2
"""Number of idle readers that stay open."""


class Closeable(Protocol):
    """A reader, such as a `Lake` or a `QueryProcess`."""

    def close(self) -> None:
        """End it."""


R = TypeVar("R", bound=Closeable)


class Shelf(Generic[R]):
    """Lends each reader to one thread at a time.

    Args:
        open_reader: Returns a new reader of a snapshot.
    """

    def __init__(self, open_reader: Callable[[int], R]) -> None:
        self._open = open_reader
        self._idle: list[tuple[int, R]] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, snapshot: int) -> Generator[R]:
        """Lend an idle reader of a snapshot, or a new one; then keep it in place of the oldest."""
        reader = self._take(snapshot) or self._open(snapshot)
        try:
            yield reader
        finally:
            with self._lock:
                self._idle.append((snapshot, reader))
                oldest = self._idle.pop(0)[1] if len(self._idle) > IDLE else None
            if oldest is not None:
                oldest.close()

    def close(self) -> None:
        """Close the idle readers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _snapshot, reader in idle:
            reader.close()

    def _take(self, snapshot: int) -> R | None:
        with self._lock:
            for place, (pinned, reader) in enumerate(self._idle):
                if pinned == snapshot:
                    del self._idle[place]
                    return reader
        return None
