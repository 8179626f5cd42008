"""The readers of the pages, which follow the lake and keep answers that were asked for before.

A reader is pinned to a snapshot, and the rows of a snapshot never change, so an answer is kept
until newer ones need its place. When the lake has a new snapshot, its first reader opens before
requests are sent to it. The statement of a request that has ended is interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

import duckdb

from store.bounds import QueryLimits
from store.commandline import echo
from store.errors import FlywheelError, summarize_error
from store.explore.page.model import EXPORTED_ROWS
from store.guard.lake_readers import LakeReaders, Turns

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.location import Location

log = logging.getLogger(__name__)

READERS = max(2, min(4, os.cpu_count() or 1))
"""Number of readers, and of statements that run at the same time."""
REFRESH_S = 2.0
"""Seconds between looks for a new snapshot."""
_PATIENCE_S = 10.0
"""Seconds until a note explains why the first reader opens late."""
_KEPT_BYTES = 128_000_000


class Readers(LakeReaders):
    """The readers of one lake; an asynchronous context manager.

    Args:
        location: The lake.
        at: Tag, snapshot number or ISO time that pages show; None follows the newest snapshot.
        limits: Time and memory of one statement.
        include: Views to read as empty (see `store.lake.reader.Lake`).
    """

    def __init__(
        self,
        location: Location,
        at: str | None,
        limits: QueryLimits,
        include: Sequence[str] = (),
    ) -> None:
        super().__init__(
            location,
            replace(limits, max_rows=EXPORTED_ROWS + 1),
            include,
            turns=Turns(READERS, None),
            query_limits=replace(limits, max_rows=EXPORTED_ROWS),
            query_turns=Turns(),
        )
        self._follows = at is None
        self.newest = self.find_snapshot(at)
        """The snapshot that pages show unless their address names one."""
        self.lake_id = ""
        self._answers: OrderedDict[tuple[int, str], pa.Table] = OrderedDict()
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._fault: str | None = None
        self._refreshed_at = datetime.now(UTC)

    async def __aenter__(self) -> Self:
        if self._follows:
            self._following = asyncio.create_task(self._follow())
        opening = asyncio.create_task(asyncio.to_thread(self._open_newest, self.newest))
        if not (await asyncio.wait([opening], timeout=_PATIENCE_S))[0]:
            echo.print_note("Pages wait for views of this snapshot, which are computed once.")
        await opening
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await super().__aexit__(*error)

    async def resolve(self, at: str | None) -> int:
        """Return the number of a snapshot by tag, number or time; raises SnapshotNotFound."""
        return self.newest if at is None else await super().resolve(at)

    async def ask(self, snapshot: int, sql: str) -> pa.Table:
        """Return the rows of one SELECT-like statement of ours at a snapshot.

        Raises:
            FlywheelError: DuckDB cannot answer it, or it exceeds a limit.
        """
        key = (snapshot, sql)
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        table = await self.read(snapshot, lambda lake: lake.sql(sql).arrow())
        self._answers[key] = table
        total = sum(kept.nbytes for kept in self._answers.values())
        while total > _KEPT_BYTES:
            total -= self._answers.popitem(last=False)[1].nbytes
        return table

    async def refresh(self) -> None:
        """Open a reader of the newest snapshot, if it is new, and then show it to requests."""
        newest = await super().resolve(None)
        if newest != self.newest and self._follows:
            await asyncio.to_thread(self._open_newest, newest)
            self.newest = newest
            self._changed.set()
            self._changed = asyncio.Event()
        self._fault, self._refreshed_at = None, datetime.now(UTC)

    async def try_refresh(self) -> None:
        """Refresh, and keep the reason if that fails: a lake on a server may be away for a while.

        Pages show the reason until a refresh succeeds; the log says it once.
        """
        try:
            await self.refresh()
        except Exception as error:  # an error that ended the task would stop the pages in silence
            reason = summarize_error(error)
            if reason != self._fault:
                is_bug = not isinstance(error, FlywheelError | duckdb.Error)
                log.warning("the pages are not refreshed: %s", reason, exc_info=is_bug)
            self._fault = reason

    def describe_fault(self) -> str | None:
        """Return since when and why pages are not refreshed; None if they are."""
        if self._fault is None:
            return None
        return f"Not refreshed since {self._refreshed_at:%Y-%m-%d %H:%M:%S} UTC: {self._fault}"

    async def wait_for_change(self) -> int:
        """Return the number of the next new snapshot, as soon as there is one."""
        await self._changed.wait()
        return self.newest

    def _open_newest(self, snapshot: int) -> None:
        """Open a reader; write the cached views first, which may exceed the time of a statement."""
        with self._lakes.lend(snapshot) as lake:
            lake.write_cached_views()
            self.lake_id = lake.lake_id

    async def _follow(self) -> None:
        """Refresh while the server runs."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.try_refresh()
