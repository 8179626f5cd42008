"""Processes that answer the user SQL of a server's clients.

The explorer's console and the MCP server use it. `store query` and `store shell` have one client
and use one `QueryProcess` directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from store.guard.query_process import Answer, QueryProcess
from store.guard.shelf import Shelf
from store.guard.turns import Turn, Turns
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
        self._processes = Shelf(self._open)

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

    def _open(self, snapshot: int) -> QueryProcess:
        return QueryProcess(self._lake_url, snapshot, self.limits, include=self._include)
