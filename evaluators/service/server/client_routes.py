"""The addresses for clients: judgments, tasks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from evaluators.scheduling import contract
from evaluators.service.queue.claims import Claims
from evaluators.service.queue.judgements import Judgements, Row, Ticket
from evaluators.service.queue.submission import (
    LONGEST_S,
    Refused,
    Submission,
    choose_class,
    parse_submission,
)
from evaluators.service.queue.tokens import Caller
from evaluators.service.queue.workers import Workers
from evaluators.service.server.access import Access, read_json, read_wait
from evaluators.service.server.changes import Changes, wait_for
from evaluators.service.server.lake_reads import LakeReads
from evaluators.service.server.recorder import Recorder

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

MOST_BYTES = 4 << 20
"""Largest body of one judgment."""
MOST_BATCH_BYTES = 32 << 20
MOST_IN_BATCH = 256
LONGEST_WAIT_S = 300.0
"""Longest `wait`; a client that wants to wait longer asks again."""
REFRESH_S = 60.0
"""Age after which a stored verdict is read from the lake again before it is returned."""
_REFRESH_WAIT_S = 5.0
_BEAT_S = 15.0
_MOST_TASKS = 1000
_ENDED = ("done", "fault", "cancelled")


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What the addresses share."""

    access: Access
    changes: Changes
    judgements: Judgements
    claims: Claims
    workers: Workers
    recorder: Recorder
    reads: LakeReads
    evaluator: contract.Evaluator
    config: Any

    @property
    def evaluator_name(self) -> str:
        """Name and version of the evaluator."""
        return f"{contract.name_of(self.evaluator)} {self.evaluator.VERSION}"


class ClientRoutes:
    """The endpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list_routes(self) -> list[BaseRoute]:
        """Return the routes."""
        from starlette.routing import Route

        guard = self._desk.access.guard
        one = "/v1/judgements/{id}"
        return [
            Route("/v1/judgements", guard("judge", self._submit), methods=["POST"]),
            Route("/v1/judgements/batch", guard("judge", self._submit_batch), methods=["POST"]),
            Route(f"{one}/events", guard("read", self._stream)),
            Route(f"{one}/rows", guard("read", self._show_rows)),
            Route(one, guard("judge", self._withdraw), methods=["DELETE"]),
            Route(one, guard("read", self._show)),
            Route("/v1/tasks", guard("read", self._list_tasks)),
            Route("/v1/tasks/{id:path}", guard("read", self._show_task)),
        ]

    async def ask(self, caller: Caller, submission: Submission, wait_s: float) -> Row:
        """Submit a kernel; return its judgment when it has ended or the seconds are over."""
        [view] = await self._accept(caller, [submission])
        return await self._await_end(view, wait_s)

    async def _submit(self, request: Request, caller: Caller) -> Response:
        wait_s = read_wait(request, LONGEST_WAIT_S)
        value = await read_json(request, MOST_BYTES)
        view = await self.ask(caller, parse_submission(value), wait_s)
        return _answer(view, 200 if view["status"] in _ENDED else 202)

    async def _submit_batch(self, request: Request, caller: Caller) -> Response:
        value = await read_json(request, MOST_BATCH_BYTES)
        listed = cast("Row", value).get("judgements") if isinstance(value, dict) else None
        if not isinstance(listed, list) or not 0 < len(cast("list[Any]", listed)) <= MOST_IN_BATCH:
            raise Refused(
                422, "invalid", f"judgements must be a list of 1 to {MOST_IN_BATCH} objects"
            )
        submissions: list[Submission] = []
        for place, one in enumerate(cast("list[Any]", listed)):
            try:
                submissions.append(parse_submission(one))
            except Refused as error:
                message = f"judgements[{place}]: {error.message}"
                raise Refused(error.status, error.code, message, error.hint) from error
        views = await self._accept(caller, submissions)
        return _answer({"judgements": views}, 202)

    async def _accept(self, caller: Caller, submissions: list[Submission]) -> list[Row]:
        """Store submissions; return their public forms in their order."""
        desk = self._desk
        if desk.changes.is_draining:
            raise Refused(503, "draining", "the server is about to end", "Send it again later.")
        task_ids = [desk.reads.find_known(one.task) for one in submissions]
        if None in task_ids:
            names = [one.task for one in submissions]
            task_ids = await asyncio.to_thread(lambda: list(map(desk.reads.find_task, names)))

        def store() -> tuple[list[Row], list[str]]:
            classes = desk.workers.list_classes()
            tickets = [
                self._write_ticket(one, str(task_id), choose_class(one.device_class, classes))
                for one, task_id in zip(submissions, task_ids, strict=True)
            ]
            ids = desk.judgements.submit(caller.client, tickets)
            views = desk.judgements.read(ids)
            stale = desk.judgements.find_stale(ids, time.time() - REFRESH_S)
            return [views[judgement_id] for judgement_id in ids], stale

        views, stale = await desk.access.run(store)
        if stale:
            await self._refresh(stale)
            views, _ = await desk.access.run(store)
        return views

    def _write_ticket(self, one: Submission, task_id: str, device_class: str) -> Ticket:
        policy = one.policy or contract.get_policy(self._desk.config)
        if one.policy is not None and not hasattr(self._desk.config, "policy"):
            why = f"{self._desk.evaluator_name} has no policies"
            raise Refused(422, "invalid", why, "Leave out the field policy.")
        return Ticket(
            submission=one,
            task_id=task_id,
            device_class=device_class,
            policy=policy,
            evaluator=self._desk.evaluator_name,
            judge_limit_s=one.judge_limit_s or LONGEST_S,
        )

    async def _refresh(self, stale: list[str]) -> None:
        """Read old verdicts from the lake again: one may be overruled or quarantined by now."""
        desk = self._desk
        until = asyncio.get_running_loop().time() + _REFRESH_WAIT_S
        desk.recorder.refresh(stale)
        with desk.changes.watch(stale[-1]) as event:
            await wait_for(event, until)

    async def _read(self, judgement_id: str) -> Row:
        desk = self._desk
        views = await desk.access.run(desk.judgements.read, [judgement_id])
        if judgement_id not in views:
            raise Refused(404, "unknown_judgement", "no such judgement", "Submit it again.")
        return views[judgement_id]

    async def _await_end(self, view: Row, wait_s: float) -> Row:
        """Return a judgment when it has ended or the seconds are over."""
        until = asyncio.get_running_loop().time() + wait_s
        with self._desk.changes.watch(view["id"]) as event:
            while not self._desk.changes.is_draining:
                event.clear()
                view = await self._read(view["id"])
                if view["status"] in _ENDED or asyncio.get_running_loop().time() >= until:
                    break
                await wait_for(event, until)
        return view

    async def _show(self, request: Request, _: Caller) -> Response:
        wait_s = read_wait(request, LONGEST_WAIT_S)
        view = await self._read(request.path_params["id"])
        return _answer(await self._await_end(view, wait_s))

    async def _stream(self, request: Request, _: Caller) -> Response:
        from starlette.responses import StreamingResponse

        view = await self._read(request.path_params["id"])
        return StreamingResponse(
            self._list_events(view),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _list_events(self, view: Row) -> AsyncIterator[str]:
        """Yield an event for every status of a judgment until it ends."""
        loop, shown = asyncio.get_running_loop(), ""
        with self._desk.changes.watch(view["id"]) as event:
            while True:
                event.clear()
                view = await self._read(view["id"])
                if view["status"] != shown:
                    shown = view["status"]
                    yield f"event: {shown}\ndata: {json.dumps(view)}\n\n"
                else:
                    yield ": alive\n\n"
                if shown in _ENDED or self._desk.changes.is_draining:
                    return
                await wait_for(event, loop.time() + _BEAT_S)

    async def _show_rows(self, request: Request, _: Caller) -> Response:
        from starlette.responses import Response

        from store.commandline.escape import encode_json

        view = await self._read(request.path_params["id"])
        if view["verdict"] is None:
            why = f"the judgement is {view['status']}"
            has_ended = view["status"] in ("fault", "cancelled")
            hint = "Submit it again." if has_ended else "Wait: GET /v1/judgements/ID?wait=60"
            raise Refused(409, "no_verdict", why, hint)
        evaluation_id = view["verdict"]["evaluation_id"]
        rows = await asyncio.to_thread(self._desk.reads.read_rows, evaluation_id)
        return Response(encode_json(rows, indent=None), media_type="application/json")

    async def _withdraw(self, request: Request, caller: Caller) -> Response:
        desk, judgement_id = self._desk, request.path_params["id"]
        if not await desk.access.run(desk.judgements.withdraw, caller.client, judgement_id):
            raise Refused(404, "unknown_judgement", "you have not submitted such a judgement")
        return _answer(await self._read(judgement_id))

    async def _list_tasks(self, request: Request, _: Caller) -> Response:
        query = request.query_params
        try:
            after, most = int(query.get("after", "0")), int(query.get("limit", "100"))
        except ValueError:
            after = most = -1
        if not (0 <= after <= 1 << 40 and 0 < most <= _MOST_TASKS):
            raise Refused(
                422, "invalid", f"after must be 0 or more, and limit from 1 to {_MOST_TASKS}"
            )
        reads = self._desk.reads
        rows = await asyncio.to_thread(reads.list_tasks, query.get("suite"), after, most)
        return _answer({"tasks": rows, "next": after + most if len(rows) == most else None})

    async def _show_task(self, request: Request, _: Caller) -> Response:
        reads = self._desk.reads
        task_id = await asyncio.to_thread(reads.find_task, request.path_params["id"])
        return _answer(await asyncio.to_thread(reads.read_task, task_id))


def _answer(content: Row, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status_code=status, headers={"cache-control": "no-store"})
