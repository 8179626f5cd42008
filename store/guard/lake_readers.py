"""What a server reads a lake with, for all its clients: the explorer's pages and the MCP server.

Our own statements run in threads, on a few readers that stay open. User SQL runs in processes;
`store query` and `store shell` have one client and use one `QueryProcess` directly.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, Self, TypeVar

from store.bounds import QueryLimits
from store.errors import FlywheelError, ServerBusy
from store.guard.query_process import QueryAnswer, QueryProcess
from store.lake import attachment
from store.lake.location import Location
from store.lake.reader import Lake

RUNNING = 2
WAITING = 32
_INTERRUPT_S = 0.05
"""Seconds until work that still runs is interrupted again."""


R = TypeVar("R", Lake, QueryProcess)
T = TypeVar("T")


class Turn:
    """One piece of work, which its caller can abandon."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_abandoned = False
        self._reader: Lake | QueryProcess | None = None
        self._lock = threading.Lock()

    @contextmanager
    def use(self, reader: Lake | QueryProcess) -> Generator[None]:
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

    async def abandon(self, task: asyncio.Task[Any]) -> None:
        """Interrupt the reader until the task of the work has ended: the caller is gone."""
        self.is_abandoned = True
        if not self.has_begun:
            task.cancel()
        while not task.done():
            with self._lock:
                # DuckDB forgets an interrupt that comes before a statement has begun.
                if self._reader is not None:
                    self._reader.interrupt()
            await asyncio.wait([task], timeout=_INTERRUPT_S)


class Turns:
    """Runs reading work in threads, a few pieces at a time.

    Work whose caller is cancelled, such as that of a client that disconnects, is interrupted.

    Args:
        waiting: Number of further pieces of work that may wait; None is any number.
    """

    def __init__(self, running: int = RUNNING, waiting: int | None = WAITING) -> None:
        self.running = running
        self._most = None if waiting is None else running + waiting
        self._free = asyncio.Semaphore(running)
        self._turns: dict[asyncio.Task[Any], Turn] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Interrupt all work, and wait until it has ended."""
        await asyncio.gather(*(turn.abandon(task) for task, turn in self._turns.items()))

    async def run(self, work: Callable[[Turn], T]) -> T:
        """Return what `work` returns; it runs in a thread and names its reader to its turn.

        Raises ServerBusy if too much work waits, and what `work` raises.
        """
        count = sum(not turn.is_abandoned for turn in self._turns.values())
        if self._most is not None and count >= self._most:
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
            ending = asyncio.create_task(turn.abandon(task))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            raise

    def _forget(self, task: asyncio.Task[Any]) -> None:
        del self._turns[task]
        if not task.cancelled():
            task.exception()  # the caller has it, or is gone


class Shelf(Generic[R]):
    """Lends each reader to one thread at a time."""

    def __init__(self, open_reader: Callable[[int], R], most: int) -> None:
        self._open = open_reader
        self._most = most
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
                oldest = self._idle.pop(0)[1] if len(self._idle) > self._most else None
            if oldest is not None:
                oldest.close()

    def close(self) -> None:
        """Close the idle readers."""
        for _, reader in self._idle:
            reader.close()


class LakeReaders:
    """Reads one lake within limits; an asynchronous context manager.

    Args:
        turns: How many pieces of our own work run and wait; None is the default.
        query_limits: Limits of each query of user SQL; None is `limits`.
        query_turns: How many of these run and wait; None is together with our own work.
    """

    def __init__(
        self,
        location: Location,
        limits: QueryLimits,
        include: Sequence[str] = (),
        *,
        turns: Turns | None = None,
        query_limits: QueryLimits | None = None,
        query_turns: Turns | None = None,
    ) -> None:
        location.require()
        self.location = location
        self.limits = limits
        self._turns = turns or Turns()
        self._query_turns = query_turns or self._turns
        self._lakes = Shelf(
            lambda snapshot: Lake(location, snapshot, limits, include=include), self._turns.running
        )
        self._processes = Shelf(
            lambda snapshot: QueryProcess(
                location.url, snapshot, query_limits or limits, include=include
            ),
            self._query_turns.running,
        )
        # Not pinned. Threads share it.
        self._connection = attachment.connect(to=location, one_thread=True)
        attachment.attach(self._connection, location, name="newest")
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        await self.resolve(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        for turns in {self._turns, self._query_turns}:
            await turns.close()
        with ExitStack() as stack:
            for opened in (self._connection, self._lakes, self._processes):
                stack.callback(opened.close)

    async def resolve(self, at: str | None) -> int:
        """Return a snapshot by tag, number or time; None is the newest. Raises SnapshotNotFound."""
        return await asyncio.to_thread(self.find_snapshot, at)

    def find_snapshot(self, at: str | None) -> int:
        """Return what `resolve` returns."""
        with self._lock:
            return attachment.resolve_snapshot(self._connection, at, name="newest")

    async def query(
        self, snapshot: int, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> QueryAnswer:
        """Answer one SELECT-like statement of a user within the limits.

        Raises:
            ServerBusy: too many queries wait.
            UnsafeSQL: not one SELECT, or it names files, functions or catalogs outside.
            FlywheelError: DuckDB cannot answer it, or it exceeds a limit; says which.
        """

        def work(turn: Turn) -> QueryAnswer:
            with self._processes.lend(snapshot) as process, turn.use(process):
                return process.ask(sql, parameters)

        return await self._query_turns.run(work)

    async def read(self, snapshot: int, work: Callable[[Lake], T]) -> T:
        """Return what a function of ours reads from the lake at a snapshot.

        Its SQL is our own, so it runs in a thread. Raises ServerBusy, and what `work` raises.
        """

        def run(turn: Turn) -> T:
            with self._lakes.lend(snapshot) as lake, turn.use(lake):
                return work(lake)

        return await self._turns.run(run)
