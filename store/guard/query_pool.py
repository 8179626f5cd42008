"""What a server reads a lake with: turns of its clients, idle readers, and user SQL in processes.

The explorer's console and the MCP server answer user SQL by a `QueryPool`. `store query` and `store
shell` have one client and use one `QueryProcess` directly.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from store.errors import FlywheelError, ServerBusy
from store.guard.query_process import Answer, QueryProcess
from store.lake import attachment
from store.lake.limits import QueryLimits
from store.lake.location import Location
from store.lake.result import Interruptible

RUNNING = 2
"""Number of pieces of work that run at the same time."""
WAITING = 32
"""Number of further pieces of work that wait for their turn."""
IDLE = 2
"""Number of idle readers that stay open."""


class Closeable(Protocol):
    """A reader, such as a `Lake` or a `QueryProcess`."""

    def close(self) -> None:
        """End it."""


R = TypeVar("R", bound=Closeable)
T = TypeVar("T")


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
        with self._lock:
            place = next((n for n, (at, _) in enumerate(self._idle) if at == snapshot), None)
            reader = None if place is None else self._idle.pop(place)[1]
        reader = reader or self._open(snapshot)
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


class Turn:
    """One piece of work, which its caller can abandon."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_abandoned = False
        self._reader: Interruptible | None = None
        self._lock = threading.Lock()

    @contextmanager
    def use(self, reader: Interruptible) -> Generator[None]:
        """Name the reader to interrupt when the caller is gone; raises FlywheelError if it is."""
        with self._lock:
            if self.is_abandoned:
                raise FlywheelError("the query was ended: its client is gone, or the server stops")
            self._reader = reader
        try:
            yield
        finally:
            with self._lock:
                self._reader = None

    def abandon(self) -> None:
        """Interrupt the reader: the caller is gone."""
        with self._lock:
            self.is_abandoned = True
            if self._reader is not None:
                self._reader.interrupt()


class Turns:
    """Runs reading work in threads, a few pieces at a time.

    Work whose caller is cancelled, such as that of a client that disconnects, is interrupted.

    Args:
        running: Number of pieces of work that run at the same time.
        waiting: Number of further pieces of work that may wait.
    """

    def __init__(self, running: int = RUNNING, waiting: int = WAITING) -> None:
        self._most = running + waiting
        self._free = asyncio.Semaphore(running)
        self._turns: dict[asyncio.Task[object], Turn] = {}

    async def close(self) -> None:
        """Interrupt all work, and wait until it has ended."""
        for task, turn in list(self._turns.items()):
            _abandon(task, turn)
        if self._turns:
            await asyncio.wait(self._turns)

    async def run(self, work: Callable[[Turn], T]) -> T:
        """Return what `work` returns; it runs in a thread and names its reader to its turn.

        Raises ServerBusy if too much work waits, and what `work` raises.
        """
        count = sum(not turn.is_abandoned for turn in self._turns.values())
        if count >= self._most:
            raise ServerBusy(
                f"{count} queries are running or waiting", "Ask again in a few seconds."
            )
        turn = Turn()

        async def run_in_thread() -> T:
            async with self._free:
                turn.has_begun = True
                return await asyncio.to_thread(work, turn)

        # A task of its own, which ends with its thread, however often the caller is cancelled.
        task = asyncio.create_task(run_in_thread())
        self._turns[task] = turn
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _abandon(task, turn)
            raise

    def _forget(self, task: asyncio.Task[object]) -> None:
        del self._turns[task]
        if not task.cancelled():
            task.exception()  # the caller has it, or is gone


def _abandon(task: asyncio.Task[object], turn: Turn) -> None:
    turn.abandon()
    if not turn.has_begun:
        task.cancel()


class QueryPool:
    """Answers user SQL at any snapshot; an asynchronous context manager.

    Args:
        lake_url: The lake.
        limits: Limits of each query.
        include: Views to read as empty (see `store.lake.reader.Lake`).
        turns: How many queries run and wait; None for the defaults.
    """

    def __init__(
        self,
        lake_url: str | None,
        limits: QueryLimits,
        include: Sequence[str] = (),
        *,
        turns: Turns | None = None,
    ) -> None:
        self.limits = limits
        self._turns = turns or Turns()
        self._processes = Shelf(
            lambda snapshot: QueryProcess(lake_url, snapshot, limits, include=include)
        )

    async def __aenter__(self) -> QueryPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._turns.close()
        self._processes.close()

    async def ask(
        self, snapshot: int, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer one SELECT-like statement within the limits.

        Args:
            snapshot: Number of the snapshot to read.
            sql: The statement.
            parameters: Texts, numbers and booleans for its placeholders.

        Raises:
            ServerBusy: too many queries wait.
            UnsafeSQL: not one SELECT, or it names files, functions or catalogs outside.
            FlywheelError: DuckDB cannot answer it, or it exceeds a limit; says which.
        """

        def work(turn: Turn) -> Answer:
            with self._processes.lend(snapshot) as process, turn.use(process):
                return process.ask(sql, parameters)

        return await self._turns.run(work)
