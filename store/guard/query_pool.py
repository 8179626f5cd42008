"""Processes that answer the user SQL of a server's clients.

The explorer's console and the MCP server use it. `store query` and `store shell` have one client
and use one `QueryProcess` directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.errors import ServerBusy
from store.guard.query_process import Answer, QueryProcess
from store.lake.limits import QueryLimits

PROCESSES = 2
"""Number of queries that run at the same time."""
WAITING = 32
"""Number of further queries that wait for their turn."""


@dataclass(eq=False)
class _Question:
    """A query on its way to a process."""

    snapshot: int
    sql: str
    parameters: Mapping[str, Any] | None
    process: QueryProcess | None = None
    is_abandoned: bool = False

    def abandon(self, answering: asyncio.Task[Answer]) -> None:
        """End the query, which a task answers: its client is gone."""
        self.is_abandoned = True
        if self.process is None:
            answering.cancel()  # it waits for its turn
        else:
            self.process.interrupt()


class QueryPool:
    """Answers user SQL at any snapshot; an asynchronous context manager.

    A query whose caller is cancelled, such as that of a client that disconnects, ends at once.

    Args:
        lake_url: The lake.
        limits: Limits of each query.
        include: Views to read as empty (see `store.lake.reader.Lake`).
        processes: Number of queries that run at the same time.
        waiting: Number of further queries that may wait.
    """

    def __init__(
        self,
        lake_url: str | None,
        limits: QueryLimits,
        include: Sequence[str] = (),
        *,
        processes: int = PROCESSES,
        waiting: int = WAITING,
    ) -> None:
        self._lake_url = lake_url
        self._limits = limits
        self._include = tuple(include)
        self._processes = processes
        self._most = processes + waiting
        self._idle: list[tuple[int, QueryProcess]] = []
        self._free = asyncio.Semaphore(processes)
        self._asked: dict[asyncio.Task[Answer], _Question] = {}

    async def __aenter__(self) -> QueryPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        for answering, question in self._asked.items():
            question.abandon(answering)
        if self._asked:
            await asyncio.wait(self._asked)
        for _snapshot, process in self._idle:
            process.close()

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
        count = sum(not question.is_abandoned for question in self._asked.values())
        if count >= self._most:
            raise ServerBusy(
                f"{count} queries are running or waiting", "Ask again in a few seconds."
            )
        question = _Question(snapshot, sql, parameters)
        # A task of its own, which keeps its process until the process is free again, however often
        # the caller is cancelled.
        answering = asyncio.create_task(self._answer(question))
        self._asked[answering] = question
        answering.add_done_callback(self._forget)
        try:
            return await asyncio.shield(answering)
        except asyncio.CancelledError:
            question.abandon(answering)
            raise

    async def _answer(self, question: _Question) -> Answer:
        async with self._free:
            process = question.process = self._take(question.snapshot)
            try:
                return await asyncio.to_thread(process.ask, question.sql, question.parameters)
            finally:
                self._idle.append((question.snapshot, process))

    def _take(self, snapshot: int) -> QueryProcess:
        """Return an idle process at a snapshot, or a new one in place of the oldest."""
        for place, (pinned, process) in enumerate(self._idle):
            if pinned == snapshot:
                del self._idle[place]
                return process
        if len(self._idle) >= self._processes:
            self._idle.pop(0)[1].close()
        return QueryProcess(self._lake_url, snapshot, self._limits, include=self._include)

    def _forget(self, answering: asyncio.Task[Answer]) -> None:
        del self._asked[answering]
        if not answering.cancelled():
            answering.exception()  # the caller has it, or is gone
