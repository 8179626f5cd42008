"""Turns of a server's reading work: how much runs at the same time, and how it is ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from store.errors import FlywheelError, ServerBusy
from store.lake.result import Interruptible

T = TypeVar("T")

RUNNING = 2
"""Number of pieces of work that run at the same time."""
WAITING = 32
"""Number of further pieces of work that wait for their turn."""


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
        # A task of its own, which ends with its thread, however often the caller is cancelled.
        task = asyncio.create_task(self._run(turn, work))
        self._turns[task] = turn
        task.add_done_callback(self._forget)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            _abandon(task, turn)
            raise

    async def _run(self, turn: Turn, work: Callable[[Turn], T]) -> T:
        async with self._free:
            turn.has_begun = True
            return await asyncio.to_thread(work, turn)

    def _forget(self, task: asyncio.Task[object]) -> None:
        del self._turns[task]
        if not task.cancelled():
            task.exception()  # the caller has it, or is gone


def _abandon(task: asyncio.Task[object], turn: Turn) -> None:
    turn.abandon()
    if not turn.has_begun:
        task.cancel()
