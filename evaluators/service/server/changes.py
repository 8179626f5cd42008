"""Wakes requests that wait for a judgment, and workers that wait for work."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager


class Changes:
    """Events of one event loop; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.work = asyncio.Event()
        """Set, and replaced, whenever a judgment changes: there may be something to claim."""
        self.is_draining = False
        """Whether every request that waits shall end now."""

    def notify(self, judgement_ids: Sequence[str]) -> None:
        """Wake all that wait for these judgments, and all workers."""
        self._loop.call_soon_threadsafe(self._wake, list(judgement_ids))

    def drain(self) -> None:
        """Wake everyone; nobody waits from now on."""
        self.is_draining = True
        self._wake(list(self._waiting))

    @contextmanager
    def watch(self, judgement_id: str) -> Generator[asyncio.Event]:
        """Yield an event that is set when a judgment changes."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(judgement_id, set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting and self._waiting.get(judgement_id) is waiting:
                del self._waiting[judgement_id]

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return sum(map(len, self._waiting.values()))

    def _wake(self, judgement_ids: Sequence[str]) -> None:
        for judgement_id in judgement_ids:
            for event in self._waiting.get(judgement_id, ()):
                event.set()
        self.work.set()
        self.work = asyncio.Event()


async def wait_for(event: asyncio.Event, until: float) -> None:
    """Wait for an event until a time of the loop's clock."""
    left_s = until - asyncio.get_running_loop().time()
    if left_s > 0:
        try:
            await asyncio.wait_for(event.wait(), left_s)
        except TimeoutError:
            return
