"""Attempts that agents submit over MCP: their rows, and the tools' access to lake and judge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import store
from evaluators.scheduling.contract import Tables
from evaluators.scheduling.pool import Pair, Pool, Verdict
from store.bounds import QueryLimits
from store.code.entry_points import choose_stored
from store.errors import FlywheelError, ServerBusy, UnknownName
from store.lake.location import Leases, Location
from store.lake.reader import Lake
from store.mcp.lake_tools import IssuedPrompt, LakeTools

SOURCE = "evaluators mcp"
PATH = "kernel.py"
_LONGEST_CODE = 500_000
_LONGEST_NOTE = 20_000
_LONGEST_NAME = 200


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What an agent submits."""

    task: str
    code: str
    author: str
    parent: str | None = None
    """Attempt or kernel that it continues: an id, or the start of a kernel's id."""
    session: str | None = None
    note: str | None = None
    prompt: IssuedPrompt | None = None
    client: str | None = None
    """Program that the agent runs in."""

    def __post_init__(self) -> None:
        """Refuse what no row may contain. Raises FlywheelError."""
        limits = {"code": _LONGEST_CODE, "note": _LONGEST_NOTE, "author": _LONGEST_NAME}
        for name, most in limits.items():
            text: str = getattr(self, name) or ""
            if len(text) > most:
                raise FlywheelError(
                    f"the {name} has {len(text)} characters, and may have {most}", "Shorten it."
                )
            if "\0" in text or text != store.clean_text(text):
                raise FlywheelError(
                    f"the {name} is not Unicode text", "Leave out NUL and lone surrogates."
                )
        for name in ("code", "author"):
            if not getattr(self, name).strip():
                raise FlywheelError(f"the {name} is empty", f"Give the {name} of the kernel.")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that is stored."""

    generation_id: str
    kernel_id: str
    task_id: str
    session_id: str
    turn: int
    parent_generation_id: str | None = None


def make_rows(lake: Lake, run_id: str, submission: Submission) -> tuple[Attempt, Tables]:
    """Return the attempt of a submission, and its rows.

    lake: A reader that sees every attempt of the session.

    Raises UnknownName: there is no such task, parent or session.
    """
    task_id = store.find_task(lake, submission.task)["task_id"]
    parent: Mapping[str, Any] = {"session_id": None, "generation_id": None}
    if submission.parent is not None:
        named = {"task_id": task_id, "generation_id": submission.parent}
        row = lake.run(store.read_sql(__file__, "parent_attempt"), named).one()
        if row is None:
            # A kernel stands for its newest attempt at the task, which may belong to another
            # author. Its session is then not continued.
            kernel_id = store.find_kernel(lake, submission.parent, "attempt or kernel")
            named = {"task_id": task_id, "kernel_id": kernel_id}
            row = lake.run(store.read_sql(__file__, "parent_kernel"), named).one()
            if row is None:
                raise UnknownName(
                    f"kernel {kernel_id[:12]} is no attempt at this task",
                    "list_attempts names the attempts at a task.",
                )
        parent = row
    session_id: str | None = submission.session or parent["session_id"]
    is_new, steps, turns = session_id is None, 0, 0
    if session_id is None:
        session_id = store.ids.uuid7()
    else:
        row = lake.run(store.read_sql(__file__, "session"), {"session_id": session_id}).one()
        if row is None:
            raise UnknownName(
                f'no session "{session_id}"', "Leave the session out; the answer names a new one."
            )
        steps, turns = row["steps"], row["turns"]
    entry_point = choose_stored(submission.code)
    kernel = {
        "kernel_id": store.ids.kernel_id({PATH: submission.code}, PATH, entry_point),
        "code": submission.code,
        "path": PATH,
        "entry_point": entry_point,
        "source": SOURCE,
    }
    attempt = Attempt(
        generation_id=store.ids.uuid7(),
        kernel_id=kernel["kernel_id"],
        task_id=task_id,
        session_id=session_id,
        turn=turns,
        parent_generation_id=parent["generation_id"],
    )
    policy_id = submission.author.strip()
    shared = {"run_id": run_id, "policy_id": policy_id, "task_id": task_id, "source": SOURCE}
    generation = {
        "generation_id": attempt.generation_id,
        "kernel_id": attempt.kernel_id,
        "trajectory_id": session_id,
        "turn": turns,
        "parent_generation_id": attempt.parent_generation_id,
        "design": submission.note,
        **shared,
    }
    prompts: list[dict[str, Any]] = []
    if (prompt := submission.prompt) is not None:
        generation |= {
            "prompt_id": prompt.prompt_id,
            "exemplar_kernel_ids": list(prompt.exemplar_kernel_ids),
            "exemplar_scores": list(prompt.exemplar_scores),
            "lake_id": prompt.lake_id,
            "snapshot_id": prompt.snapshot_id,
        }
        names = ("prompt_id", "messages", "template_hash", "task_id", "purpose")
        prompts = [{name: getattr(prompt, name) for name in names}]
    step = {
        "session_id": session_id,
        "step": steps,
        "role": "assistant",
        "content": submission.note,
        "model": policy_id,
        "generation_id": attempt.generation_id,
    }
    session = {"session_id": session_id, "harness": submission.client, **shared}
    return attempt, {
        "policies": [{"policy_id": policy_id, "name": policy_id, "kind": "model"}],
        "kernels": [kernel],
        "kernel_features": store.extract_row_features([kernel]),
        "sessions": [session] if is_new else [],
        "prompts": prompts,
        "generations": [generation],
        "session_steps": [step],
    }


T = TypeVar("T")

MOST_WAITING = 64
"""Number of kernels that wait for their verdict at the same time."""
_TURN, _TURN_S = "submission", 60.0
"""Lease of the server that stores an attempt, and how long another one waits for it."""
_MOST_VERDICTS = 1000
"""Number of verdicts that are kept until an agent asks for them."""


class JudgeTools(LakeTools):
    """Reads a lake, stores attempts, and judges their kernels on this machine.

    An attempt is committed before its kernel is judged, and each verdict as soon as it is there. A
    server that is killed loses neither: a later request for the verdict judges the kernel.

    make_pool: Returns the judges; entering them may take long.
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
        """Return a stored attempt by its id; raises UnknownName if there is none with a kernel."""

        def find(lake: Lake) -> dict[str, Any] | None:
            query = store.read_sql(__file__, "attempt")
            return lake.run(query, {"generation_id": generation_id}).one()

        row = await self.read(await self.resolve(None), find)
        if row is None:
            raise UnknownName(
                f'no attempt "{generation_id}" with a kernel and a task',
                "Give the generation_id that submit_kernel or list_attempts named.",
            )
        return Attempt(**row)

    def _judge(self, pair: Pair) -> asyncio.Task[Verdict]:
        """Return the task that gets the verdict on a kernel for a task."""
        task = self._verdicts.get(pair)
        if task is None:
            task = self._verdicts[pair] = asyncio.create_task(self._evaluate(pair))
            # The error counts as seen, because an agent may never ask for it.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
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
            opening = self._opening = asyncio.create_task(
                asyncio.to_thread(lambda: self._make_pool().__enter__())
            )
        return opening

    def _store(self, submission: Submission) -> Attempt:
        """Append the rows of a submission; runs in the thread that writes.

        The first call appends the run of this server.
        """
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
        if self._leases is None:
            self._leases = self.location.open_leases()
        # Servers store attempts in turn: steps of a session are numbered in order.
        until = time.monotonic() + _TURN_S
        while not self._leases.take([_TURN]):
            if time.monotonic() > until:
                raise ServerBusy("another server stores an attempt", "Submit yours again.")
            time.sleep(0.02)
        try:
            with self._writer.reader() as lake:
                attempt, tables = make_rows(lake, self._run_id, submission)
            self._writer.append(tables, f"an attempt of {submission.author[:40]}")
        finally:
            self._leases.release([_TURN])
        return attempt

    async def _write(self, work: Callable[[], T]) -> T:
        """Run work in the one thread that writes; a caller that is gone does not stop it."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._writing, work))
