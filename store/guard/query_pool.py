"""Processes that answer the user SQL of a server's clients.

The explorer's console and the MCP server use it. `store query` and `store shell` have one client
and use one `QueryProcess` directly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from store.guard.query_process import Answer, QueryProcess
from store.guard.turns import RUNNING, Turn, Turns
from store.lake.limits import QueryLimits


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
        self._lake_url = lake_url
        self._include = tuple(include)
        self._turns = turns or Turns()
        self._idle: list[tuple[int, QueryProcess]] = []
        self._lock = threading.Lock()

    async def __aenter__(self) -> QueryPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._turns.close()
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

        def work(turn: Turn) -> Answer:
            process = self._take(snapshot)
            try:
                turn.use(process)
                return process.ask(sql, parameters)
            finally:
                with self._lock:
                    self._idle.append((snapshot, process))

        return await self._turns.run(work)

    def _take(self, snapshot: int) -> QueryProcess:
        """Return an idle process at a snapshot, or a new one in place of the oldest."""
        with self._lock:
            for place, (pinned, process) in enumerate(self._idle):
                if pinned == snapshot:
                    del self._idle[place]
                    return process
            oldest = self._idle.pop(0)[1] if len(self._idle) >= RUNNING else None
        if oldest is not None:
            oldest.close()
        return QueryProcess(self._lake_url, snapshot, self.limits, include=self._include)
