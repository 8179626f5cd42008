"""The desk of a server whose agents submit kernels: it stores attempts and judges them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

import store
from evaluators.scheduling.pool import Pair, Pool, Verdict
from evaluators.submissions.attempt_rows import SOURCE, Attempt, Submission, find_attempt, make_rows
from store.errors import ServerBusy
from store.lake.leases import Leases
from store.lake.limits import QueryLimits
from store.lake.location import Location
from store.mcp.lake_tools import LakeTools

T = TypeVar("T")

MOST_WAITING = 64
"""Number of kernels that wait for their verdict at the same time."""
_TURN, _TURN_S = "submission", 60.0
"""Lease of the server that stores an attempt, and how long another one waits for it."""
_MOST_VERDICTS = 1000
"""Number of verdicts that are kept until an agent asks for them."""


class JudgeDesk(LakeTools):
    """Reads a lake, stores attempts, and judges their kernels on this machine.

    An attempt is committed before its kernel is judged, and each verdict as soon as it is there. A
    server that is killed loses neither: a later request for the verdict judges the kernel.

    Args:
        location: The lake.
        limits: Limits of each call.
        make_pool: Returns the judges; entering them may take long.
        config: Options of the judges, for the table runs.
    """

    def __init__(
        self,
        location: Location,
        limits: QueryLimits,
        make_pool: Callable[[], Pool],
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(location, None, limits)
        self._make_pool = make_pool
        self._config = config
        self._writing = ThreadPoolExecutor(1, "submissions")
        self._writer: store.Writer | None = None
        self._stack = ExitStack()
        """The writer, and the run of this server."""
        self._leases: Leases | None = None
        self._run_id = ""
        self._opening: asyncio.Task[Pool] | None = None
        self._verdicts: dict[Pair, asyncio.Task[Verdict]] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._start_judges()  # while the agent reads
        return self

    async def __aexit__(self, *error: Any) -> None:
        for task in self._verdicts.values():
            task.cancel()
        if self._opening is not None:
            [pool] = await asyncio.gather(self._opening, return_exceptions=True)
            if isinstance(pool, Pool):
                await asyncio.to_thread(pool.__exit__)
        await self._write(lambda: self._stack.__exit__(*error))
        if self._leases is not None:
            self._leases.close()
        self._writing.shutdown()
        await super().__aexit__(*error)

    async def submit(self, submission: Submission) -> Attempt:
        """Store an attempt and ask for the verdict on its kernel.

        Raises:
            ServerBusy: too many kernels wait, or another server has been storing an attempt for a
                minute.
            UnknownName: no such task, parent or session.
            RowsRejected: a row breaks a rule of the catalog.
        """
        waiting = sum(not task.done() for task in self._verdicts.values())
        if waiting >= MOST_WAITING:
            raise ServerBusy(
                f"{waiting} kernels wait for their verdict", "Wait for one with get_verdict."
            )
        attempt = await self._write(lambda: self._store(submission))
        self._judge((attempt.kernel_id, attempt.task_id))
        return attempt

    async def wait_for_verdict(self, attempt: Attempt, wait_s: float) -> Verdict | None:
        """Return the verdict on an attempt's kernel, or None if it takes longer than `wait_s`.

        A verdict that the lake has is returned; a kernel without one is judged. If the judge itself
        failed, the next request judges again.

        Raises:
            DeviceUnavailable: the device is not there, or cannot be measured on.
            UnknownName: the task has no workload for this device.
        """
        pair = (attempt.kernel_id, attempt.task_id)
        task = self._judge(pair)
        done, _ = await asyncio.wait([task], timeout=max(wait_s, 0))
        if not done:
            return None
        self._verdicts.pop(pair, None)
        return task.result()

    async def find_attempt(self, generation_id: str) -> Attempt:
        """Return a stored attempt; raises UnknownName."""
        snapshot = await self.resolve(None)
        return await self.read(snapshot, lambda lake: find_attempt(lake, generation_id))

    def _judge(self, pair: Pair) -> asyncio.Task[Verdict]:
        """Return the task that gets the verdict on a kernel for a task."""
        task = self._verdicts.get(pair)
        if task is None:
            task = self._verdicts[pair] = asyncio.create_task(self._evaluate(pair))
            task.add_done_callback(_look_at)
            for old, done in list(self._verdicts.items())[:-_MOST_VERDICTS]:
                if done.done():
                    del self._verdicts[old]
        return task

    async def _evaluate(self, pair: Pair) -> Verdict:
        pool = await asyncio.shield(self._start_judges())
        return await pool.evaluate(*pair)

    def _start_judges(self) -> asyncio.Task[Pool]:
        """Start the judges unless they are there; the next request tries again if that failed."""
        opening = self._opening
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._opening = asyncio.create_task(asyncio.to_thread(self._open_pool))
        return opening

    def _open_pool(self) -> Pool:
        return self._make_pool().__enter__()

    def _store(self, submission: Submission) -> Attempt:
        """Append the rows of a submission; runs in the thread that writes."""
        writer = self._open_writer()
        with self._take_turn():
            with writer.reader() as lake:
                attempt, tables = make_rows(lake, self._run_id, submission)
            writer.append(tables, f"an attempt of {submission.author[:40]}")
        return attempt

    @contextmanager
    def _take_turn(self) -> Generator[None]:
        """Keep other servers from storing attempts: steps of a session are numbered in order."""
        if self._leases is None:
            self._leases = self.location.open_leases()
        until = time.monotonic() + _TURN_S
        while not self._leases.take([_TURN]):
            if time.monotonic() > until:
                raise ServerBusy("another server stores an attempt", "Submit yours again.")
            time.sleep(0.02)
        try:
            yield
        finally:
            self._leases.release([_TURN])

    def _open_writer(self) -> store.Writer:
        """Return the writer; the first call appends the run of this server."""
        if self._writer is None:
            with ExitStack() as stack:
                writer = stack.enter_context(store.writer(self.location.url, author=SOURCE))
                with writer.reader() as lake:
                    run = store.make_run(
                        kind="rollout",
                        name="mcp",
                        config=self._config,
                        lake_id=lake.lake_id,
                        snapshot_id=lake.snapshot,
                    )
                record = store.record_run(writer, run, "agents begin to submit")
                self._run_id = stack.enter_context(record).run_id
                self._stack = stack.pop_all()
            self._writer = writer
        return self._writer

    async def _write(self, work: Callable[[], T]) -> T:
        """Run work in the one thread that writes; a caller that is gone does not stop it."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._writing, work))


def _look_at(task: asyncio.Task[Verdict]) -> None:
    """Mark the error of a task as seen, because an agent may never ask for it."""
    if not task.cancelled():
        task.exception()
