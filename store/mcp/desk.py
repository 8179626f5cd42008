"""What the tools of a server read a lake with."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from store.guard.query_pool import QueryPool, Shelf, SnapshotFinder, Turn, Turns
from store.guard.query_process import Answer
from store.lake.limits import QueryLimits
from store.lake.location import Location
from store.lake.reader import Lake
from store.lake.result import interrupt_after

T = TypeVar("T")

CLIENT: ContextVar[str | None] = ContextVar("CLIENT", default=None)
"""Name and version of the program that calls a tool, as it states them."""
_MOST_PROMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class IssuedPrompt:
    """A prompt that a tool gave to an agent; a later attempt can name it."""

    prompt_id: str
    messages: str
    """JSON, as the table prompts stores it."""
    template_hash: str
    task_id: str
    purpose: str
    exemplar_kernel_ids: Sequence[str]
    exemplar_scores: Sequence[float]
    lake_id: str
    snapshot_id: int


class Desk:
    """Reads one lake within limits; an asynchronous context manager.

    Args:
        location: The lake.
        at: Tag, snapshot number or ISO time that tools read; None is the newest at each call.
        limits: Limits of each call.
    """

    def __init__(self, location: Location, at: str | None, limits: QueryLimits) -> None:
        location.require()
        self.location = location
        self.limits = limits
        self.prompts: OrderedDict[str, IssuedPrompt] = OrderedDict()
        """Prompts that this server has issued, by id; the oldest are forgotten."""
        self._finder = SnapshotFinder(location)
        self._at = at
        self._readers = Shelf(lambda snapshot: Lake(location, snapshot, limits))
        self._turns = Turns()
        self._pool = QueryPool(location.url, limits, turns=self._turns)

    async def __aenter__(self) -> Self:
        await self.resolve(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.__aexit__()
        self._readers.close()
        self._finder.close()

    async def resolve(self, at: str | None) -> int:
        """Return the snapshot that a call reads. Raises SnapshotNotFound."""
        return await asyncio.to_thread(self._finder.resolve, at or self._at)

    async def ask(
        self, snapshot: int, sql: str, parameters: Mapping[str, Any] | None = None
    ) -> Answer:
        """Answer SQL of the agent; see `QueryPool.ask`."""
        return await self._pool.ask(snapshot, sql, parameters)

    async def read(self, snapshot: int, work: Callable[[Lake], T]) -> T:
        """Return what a function of ours reads from the lake at a snapshot.

        Its SQL is our own, so it runs in a thread. It takes its turn with the agents' queries, and
        has the same limits on time, memory and threads.

        Raises ServerBusy, FlywheelError past a limit, and what `work` raises.
        """

        def run(turn: Turn) -> T:
            with (
                self._readers.lend(snapshot) as lake,
                turn.use(lake),
                interrupt_after(lake, self.limits),
            ):
                return work(lake)

        return await self._turns.run(run)

    def remember(self, prompt: IssuedPrompt) -> None:
        """Remember a prompt, so that an attempt can name it."""
        self.prompts[prompt.prompt_id] = prompt
        while len(self.prompts) > _MOST_PROMPTS:
            self.prompts.popitem(last=False)
