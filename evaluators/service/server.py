"""The server of a judge service: its addresses for clients, who waits for what, and its end.

Every request needs a token with a scope, except on a server of this machine that has none.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import hashlib
import hmac
import json
import logging
import os
import re
import resource
import secrets
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeVar, TypeVarTuple, cast

import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

import store
from evaluators.device import placement
from evaluators.scheduling import contract, ray_cluster
from evaluators.scheduling.judge_threads import StartedJudge
from evaluators.scheduling.judges.process import start_judges
from evaluators.service.client import read_judgement, write_request
from evaluators.service.completions import Scored, check_rule, parse_kernel, score_judgement
from evaluators.service.judging import Judging, Recorder
from evaluators.service.queue import (
    LONGEST_S,
    Database,
    Queue,
    Refused,
    Row,
    Scope,
    Submission,
    Ticket,
    choose_class,
    hash_token,
    list_tokens,
    parse_submission,
    refuse_malformed,
)
from store import read_sql
from store.commandline import echo, interrupts
from store.commandline.escape import encode_json
from store.commandline.listening import is_loopback, listen
from store.dossier.pages import TaskNames, read_task_names
from store.errors import FlywheelError, ImportFailed, UnknownName
from store.explore.server.protection import HOSTS, Protection
from store.foreign import text_files

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Answer: TypeAlias = "Callable[[Request, Caller], Awaitable[Response]]"
_FORM = re.compile(r"fw_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_BODY_S = 30.0
"""Seconds in which a client must have sent its body."""
_NOBODY = hashlib.sha256(b"").hexdigest()
_FRESH_S = 1.0
"""Seconds during which a task that is unknown is not looked for again."""
_ROWS = {
    "evaluations": 'SELECT * EXCLUDE (run_id) RENAME ("precision" AS policy) FROM evaluations'
    " WHERE evaluation_id = $id",
    "timings": "SELECT * FROM timings WHERE evaluation_id = $id",
    "findings": "SELECT * EXCLUDE (run_id) FROM findings WHERE evaluation_id = $id",
    "devices": "SELECT * FROM devices WHERE device_id IN"
    " (SELECT device_id FROM evaluations WHERE evaluation_id = $id)",
}
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
_MOST_ANSWER_BYTES = 16 << 20
REWARD_WAIT_S = 110.0
"""Seconds that /v1/reward waits: slime gives up after 120 s, and asks again."""
_VERIFY_WAIT_S = 3600.0
_ENDED = ("done", "fault", "cancelled")
_QUEUED = ("new", "queued")
_METRICS = {
    "queued": ("gauge", "Judgements that wait for a judge."),
    "running": ("gauge", "Judgements that the judges have, or whose rows are being stored."),
    "devices": ("gauge", "Devices that take kernels."),
    "devices_quarantined": ("gauge", "Devices that take no kernels because they are sick."),
    "waiting_requests": ("gauge", "Requests that wait for a judgement to end."),
    "answers_total": ("counter", "Answers of the judges."),
    "claims_lost_total": ("counter", "Judgements that a killed server had claimed."),
    "judged_seconds_total": ("counter", "Seconds of judging."),
}


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    client: str
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Whether the caller has a scope; admin has all, and judge includes read."""
        granted = self.scopes | ({"read"} if "judge" in self.scopes else set())
        return scope in granted or "admin" in granted


LOCAL = Caller("local", frozenset({"admin"}))
"""The caller of a server on this machine that has no tokens."""


class Access:
    """Checks callers, and runs the queue's transactions in a thread of their own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, "queue")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a function on the queue."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)

    def guard(self, scope: Scope, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that only callers with a scope reach, and that refuses in JSON."""

        @functools.wraps(answer)
        async def guarded(request: Request) -> Response:
            try:
                caller = await self.run(self._find_caller, request.headers.get("authorization"))
                if not caller.may(scope):
                    raise Refused(
                        403,
                        "forbidden",
                        f"the token lacks the scope {scope}",
                        f"Ask for a token with it: evaluators token create NAME --scope {scope}",
                    )
                return await answer(request, caller)
            except Exception as error:
                return refuse(error)

        return guarded

    def _find_caller(self, header: str | None) -> Caller:
        """Return who sends a request. Raises Refused (401).

        This takes the same time for every wrong token of an id.
        """
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "bearer" and token:
            form = _FORM.fullmatch(token.strip())
            rows = self._database.read(
                "SELECT client, scopes, hash FROM tokens WHERE token_id = ?",
                [form[1] if form else ""],
            )
            stored = rows[0]["hash"] if rows else _NOBODY
            if hmac.compare_digest(stored, hash_token(token.strip())) and rows:
                return Caller(rows[0]["client"], frozenset(rows[0]["scopes"].split()))
        elif header is None and not list_tokens(self._database):
            return LOCAL  # a server without tokens listens to this machine only
        raise Refused(
            401,
            "unauthorized",
            "the token is missing, wrong or revoked",
            "Send the header Authorization: Bearer TOKEN. `evaluators token create` makes one.",
        )


def refuse(error: Exception) -> Response:
    """Return the answer to a request that failed. It says nothing of what is inside the server."""
    if isinstance(error, Refused):
        content = {"code": error.code, "message": error.message, "hint": error.hint}
        headers = {"retry-after": "5"} if error.status in (429, 503) else {}
        if error.status == 401:
            headers["www-authenticate"] = "Bearer"
        if error.retry_after_s is not None:
            headers["retry-after"] = str(error.retry_after_s)
        return JSONResponse({"error": content}, status_code=error.status, headers=headers)
    if isinstance(error, ClientDisconnect):
        return JSONResponse({"error": {"code": "disconnected"}}, status_code=400)
    incident = secrets.token_hex(4)
    log.error("incident %s", incident, exc_info=error)
    is_lake = isinstance(error, FlywheelError)
    content = {
        "code": "lake_unavailable" if is_lake else "internal",
        "message": f"the server failed; its log has incident {incident}",
    }
    return JSONResponse({"error": content}, status_code=503 if is_lake else 500)


async def read_json(request: Request, most_bytes: int) -> Any:
    """Return the JSON value of a body. Raises Refused (408, 413, 415, 422)."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise Refused(
            415,
            "unsupported_type",
            "the body must have the type application/json",
            "Send the header Content-Type: application/json.",
        )
    too_large = Refused(413, "too_large", f"the body has more than {most_bytes} bytes")
    if int(request.headers.get("content-length") or 0) > most_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > most_bytes:
                    raise too_large
    except TimeoutError as error:
        raise Refused(408, "slow", f"the body took more than {_BODY_S:g} s") from error
    try:
        return text_files.parse_json(body.decode("utf-8"), "the body")
    except UnicodeDecodeError as error:
        raise refuse_malformed("the body is not UTF-8") from error
    except ImportFailed as error:
        raise refuse_malformed(error.message[:300]) from error


def read_wait(request: Request, most_s: float) -> float:
    """Return the seconds in the parameter `wait`, at most `most_s`. Raises Refused (422)."""
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise refuse_malformed("wait must be a number of seconds, 0 or more")
    return min(seconds, most_s)


class LakeReads:
    """Reads of one lake, each at its newest snapshot. Its methods may run in any thread."""

    def __init__(self, location: store.Location) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._names = TaskNames()
        self._read_at = -_FRESH_S

    def find_known(self, text: str) -> str | None:
        """Return the id of a task that is known without reading the lake, or None."""
        matches = self._names.match(text)
        return matches[0]["task_id"] if len(matches) == 1 else None

    def find_task(self, text: str) -> str:
        """Return the id of a task as `store.find_task` finds it.

        Raises Refused: no such task (404), or several (422).
        """
        if not self._names.match(text):
            self._read_tasks()
        names = self._names
        try:
            return names.find(text)["task_id"]
        except UnknownName as error:
            refusal = (422, "ambiguous_task") if names.match(text) else (404, "unknown_task")
            raise Refused(*refusal, error.message, error.hint) from error

    def list_tasks(self, suite: str | None, after: int, most: int) -> list[dict[str, Any]]:
        """Return tasks of a suite (None for all) from a position on."""
        self._read_tasks()
        rows = [row for row in self._tasks.values() if suite in (None, row["suite"])]
        return rows[after : after + most]

    def read_task(self, task_id: str) -> dict[str, Any]:
        """Return a task with its text."""
        with store.open(self._location.url) as lake:
            row = lake.run("SELECT code FROM tasks WHERE task_id = $id", {"id": task_id}).one()
        return self._tasks[task_id] | {"code": row["code"] if row is not None else None}

    def read_rows(self, evaluation_id: str) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return the rows of an evaluation by table: its samples, findings and device."""
        with store.open(self._location.url) as lake:
            return {
                name: lake.run(sql, {"id": evaluation_id}).rows() for name, sql in _ROWS.items()
            }

    def _read_tasks(self) -> None:
        with self._lock:
            if time.monotonic() - self._read_at < _FRESH_S:
                return
            with store.open(self._location.url) as lake:
                rows = lake.run(read_sql(__file__, "tasks")).rows()
                names = read_task_names(lake)
            self._tasks = {row["task_id"]: row for row in rows}
            self._names = names
            self._read_at = time.monotonic()


class Changes:
    """Events of one event loop; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.is_draining = False
        """Whether every request that waits shall end now."""

    def open(self) -> None:
        """Belong to the running loop."""
        self._loop = asyncio.get_running_loop()

    def notify(self, judgement_ids: Sequence[str]) -> None:
        """Wake all that wait for these judgments."""
        if self._loop is not None and not self._loop.is_closed():
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


async def wait_for(event: asyncio.Event, until: float) -> None:
    """Wait for an event until a time of the loop's clock."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            await event.wait()


@dataclass(frozen=True, kw_only=True)
class ClientRoutes:
    """The endpoints, and what they share."""

    access: Access
    changes: Changes
    queue: Queue
    recorder: Recorder
    reads: LakeReads
    evaluator: contract.Evaluator
    config: Any
    began: float = field(default_factory=time.monotonic)

    @property
    def evaluator_name(self) -> str:
        """Name and version of the evaluator."""
        return f"{contract.name_of(self.evaluator)} {self.evaluator.VERSION}"

    def list_routes(self) -> list[BaseRoute]:
        """Return the routes."""
        guard = self.access.guard
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
            Route("/v1/health", guard("read", self._show_health)),
            Route("/metrics", guard("read", self._show_metrics)),
            Route("/v1/reward", guard("judge", self._give_reward), methods=["POST"]),
            Route("/seed_session", guard("judge", self._seed_session), methods=["POST"]),
            Route("/verify", guard("judge", self._verify), methods=["POST"]),
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
            raise refuse_malformed(f"judgements must be a list of 1 to {MOST_IN_BATCH} objects")
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
        if self.changes.is_draining:
            raise Refused(503, "draining", "the server is about to end", "Send it again later.")
        task_ids = [self.reads.find_known(one.task) for one in submissions]
        if None in task_ids:
            names = [one.task for one in submissions]
            task_ids = await asyncio.to_thread(lambda: list(map(self.reads.find_task, names)))

        def store() -> tuple[list[Row], list[str]]:
            classes = self.queue.list_classes()
            tickets: list[Ticket] = []
            for submission, task_id in zip(submissions, task_ids, strict=True):
                if submission.precision is not None and not hasattr(self.config, "precision"):
                    why = f"{self.evaluator_name} has no precisions"
                    raise refuse_malformed(why, "Leave out the field policy.")
                ticket = Ticket(
                    submission=submission,
                    task_id=str(task_id),
                    device_class=choose_class(submission.device_class, classes),
                    precision=submission.precision or contract.get_precision(self.config),
                    evaluator=self.evaluator_name,
                    judge_limit_s=submission.judge_limit_s or LONGEST_S,
                )
                tickets.append(ticket)
            ids = self.queue.submit(caller.client, tickets)
            views = self.queue.read(ids)
            stale = self.queue.find_stale(ids, time.time() - REFRESH_S)
            return [views[judgement_id] for judgement_id in ids], stale

        views, stale = await self.access.run(store)
        if stale:
            # An old verdict may be overruled or quarantined by now: read it from the lake again.
            until = asyncio.get_running_loop().time() + _REFRESH_WAIT_S
            self.recorder.refresh(stale)
            with self.changes.watch(stale[-1]) as event:
                await wait_for(event, until)
            views, _ = await self.access.run(store)
        return views

    async def _read(self, judgement_id: str) -> Row:
        views = await self.access.run(self.queue.read, [judgement_id])
        if judgement_id not in views:
            raise Refused(404, "unknown_judgement", "no such judgement", "Submit it again.")
        return views[judgement_id]

    async def _await_end(self, view: Row, wait_s: float) -> Row:
        until = asyncio.get_running_loop().time() + wait_s
        with self.changes.watch(view["id"]) as event:
            while not self.changes.is_draining:
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
        view = await self._read(request.path_params["id"])
        return StreamingResponse(
            self._list_events(view),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _list_events(self, view: Row) -> AsyncIterator[str]:
        loop, shown = asyncio.get_running_loop(), ""
        with self.changes.watch(view["id"]) as event:
            while True:
                event.clear()
                view = await self._read(view["id"])
                if view["status"] != shown:
                    shown = view["status"]
                    yield f"event: {shown}\ndata: {json.dumps(view)}\n\n"
                else:
                    yield ": alive\n\n"
                if shown in _ENDED or self.changes.is_draining:
                    return
                await wait_for(event, loop.time() + _BEAT_S)

    async def _show_rows(self, request: Request, _: Caller) -> Response:
        view = await self._read(request.path_params["id"])
        if view["verdict"] is None:
            why = f"the judgement is {view['status']}"
            has_ended = view["status"] in ("fault", "cancelled")
            hint = "Submit it again." if has_ended else "Wait: GET /v1/judgements/ID?wait=60"
            raise Refused(409, "no_verdict", why, hint)
        evaluation_id = view["verdict"]["evaluation_id"]
        rows = await asyncio.to_thread(self.reads.read_rows, evaluation_id)
        return Response(encode_json(rows, indent=None), media_type="application/json")

    async def _withdraw(self, request: Request, caller: Caller) -> Response:
        judgement_id = request.path_params["id"]
        if not await self.access.run(self.queue.withdraw, caller.client, judgement_id):
            raise Refused(404, "unknown_judgement", "you have not submitted such a judgement")
        return _answer(await self._read(judgement_id))

    async def _list_tasks(self, request: Request, _: Caller) -> Response:
        query = request.query_params
        try:
            after, most = int(query.get("after", "0")), int(query.get("limit", "100"))
        except ValueError:
            after = most = -1
        if not (0 <= after <= 1 << 40 and 0 < most <= _MOST_TASKS):
            raise refuse_malformed(f"after must be 0 or more, and limit from 1 to {_MOST_TASKS}")
        reads = self.reads
        rows = await asyncio.to_thread(reads.list_tasks, query.get("suite"), after, most)
        return _answer({"tasks": rows, "next": after + most if len(rows) == most else None})

    async def _show_task(self, request: Request, _: Caller) -> Response:
        reads = self.reads
        task_id = await asyncio.to_thread(reads.find_task, request.path_params["id"])
        return _answer(await asyncio.to_thread(reads.read_task, task_id))

    def _collect(self) -> dict[str, dict[str, Any]]:
        # Classes last: a judge that starts meanwhile may add one.
        waiting, devices = self.queue.count_waiting(), self.queue.list_devices()
        classes: dict[str, dict[str, Any]] = {
            name: {"kind": kind, "queued": 0, "running": 0, "devices": 0, "quarantined": {}}
            for name, kind in self.queue.list_classes().items()
        }
        for row in waiting:
            what = "queued" if row["state"] in _QUEUED else "running"
            classes[row["device_class"]][what] += row["n"]
        for device in devices:
            one = classes[device["device_class"]]
            if device["quarantine"] is not None:
                one["quarantined"][device["device_id"]] = device["quarantine"]
            elif device["is_here"]:
                one["devices"] += 1
        return classes

    async def _show_health(self, _: Request, __: Caller) -> Response:
        classes = await self.access.run(self._collect)
        has_devices = any(one["devices"] for one in classes.values())
        status = "ok" if has_devices and self.recorder.fault is None else "degraded"
        if self.changes.is_draining:
            status = "draining"
        content = {
            "status": status,
            "version": store.__version__,
            "evaluator": self.evaluator_name,
            "uptime_s": round(time.monotonic() - self.began, 1),
            "lake_fault": self.recorder.fault,
            "classes": classes,
        }
        return JSONResponse(content)

    async def _show_metrics(self, _: Request, __: Caller) -> Response:
        classes = await self.access.run(self._collect)
        counters = await self.access.run(self.queue.read_counters)
        values: dict[str, dict[str, float]] = {
            what: {name: one[what] for name, one in classes.items()}
            for what in ("queued", "running", "devices")
        }
        values |= {
            "devices_quarantined": {name: len(classes[name]["quarantined"]) for name in classes},
            "waiting_requests": {"": self.changes.waiting},
            "answers_total": {"": counters.get("answers", 0)},
            "claims_lost_total": {"": counters.get("claims_lost", 0)},
            "judged_seconds_total": {"": counters.get("judged_s", 0)},
        }
        return PlainTextResponse(
            format_metrics(values), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    # What RL frameworks ask in forms of their own: slime's remote_rm, and NeMo Gym. A completion
    # without code has the reward 0. A kernel that was not judged gives 503 and no reward.

    async def _give_reward(self, request: Request, caller: Caller) -> Response:
        """Answer slime: the body is prompt, response and label, and the answer is the number."""
        value = await _read_object(request)
        task = _read_field(value, "label")
        scored = await self._score(
            request, caller, task, _read_field(value, "response"), REWARD_WAIT_S
        )
        return JSONResponse(scored.reward)

    async def _seed_session(self, request: Request, _: Caller) -> Response:
        """Answer NeMo Gym: a session has no state here."""
        await read_json(request, _MOST_ANSWER_BYTES)
        return JSONResponse({})

    async def _verify(self, request: Request, caller: Caller) -> Response:
        """Answer NeMo Gym: the body is a dataset row with `task` and the model's response."""
        value = await _read_object(request)
        text = _read_response(value.get("response"))
        scored = await self._score(
            request, caller, _read_field(value, "task"), text, _VERIFY_WAIT_S
        )
        facts = {name: None if fact != fact else fact for name, fact in scored.facts.items()}
        return JSONResponse({**value, "reward": scored.reward, **facts})

    async def _score(
        self, request: Request, caller: Caller, task: str, text: str, wait_s: float
    ) -> Scored:
        """Return the reward of a completion. Raises Refused (503) where it was not judged."""
        try:
            rule = check_rule(request.query_params.get("rule", "speedup"))
        except UnknownName as error:
            raise refuse_malformed(error.message, error.hint) from error
        kernel = parse_kernel(text)
        if kernel is None:
            return Scored(reward=0.0, status="no_code")
        fields = write_request(task, kernel)
        device_class = request.query_params.get("device_class")
        if device_class is not None:
            fields["device_class"] = device_class
        view = await self.ask(caller, parse_submission(fields), wait_s)
        if view["status"] not in ("done", "fault", "cancelled"):
            raise Refused(503, "not_judged_yet", "the kernel waits; send the request again")
        scored = score_judgement(read_judgement(view), rule)
        if scored.reward is None:
            fault = view["fault"] or {"reason": view["status"], "message": None}
            raise Refused(503, "not_judged", f"no verdict: {fault['reason']}: {fault['message']}")
        return scored


async def _read_object(request: Request) -> Row:
    value = await read_json(request, _MOST_ANSWER_BYTES)
    if not isinstance(value, dict):
        raise refuse_malformed("the body must be an object")
    return cast("Row", value)


def _read_field(value: Row, name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise refuse_malformed(f"{name} must be a text")
    return text


def _read_response(value: Any) -> str:
    texts: list[str] = []
    output = cast("Row", value).get("output") if isinstance(value, dict) else None
    for item in cast("list[Any]", output) if isinstance(output, list) else []:
        if isinstance(item, dict) and cast("Row", item).get("type") == "message":
            content = cast("Row", item).get("content")
            for part in cast("list[Any]", content) if isinstance(content, list) else []:
                if isinstance(part, dict) and isinstance(cast("Row", part).get("text"), str):
                    texts.append(cast("Row", part)["text"])
    if not texts:
        raise refuse_malformed("response has no message with a text")
    return texts[-1]


def _answer(content: Row, status: int = 200) -> Response:
    return JSONResponse(content, status_code=status, headers={"cache-control": "no-store"})


def format_metrics(values: dict[str, dict[str, float]]) -> str:
    r"""Return values in Prometheus' text format; "" stands for no device class.

    >>> print(format_metrics({"queued": {'a "b"': 2}}), end="")
    # HELP flywheel_judge_queued Judgements that wait for a judge.
    # TYPE flywheel_judge_queued gauge
    flywheel_judge_queued{device_class="a \"b\""} 2
    """
    lines: list[str] = []
    for name, by_class in values.items():
        kind, about = _METRICS[name]
        full = f"flywheel_judge_{name}"
        lines += [f"# HELP {full} {about}", f"# TYPE {full} {kind}"]
        for device_class, value in by_class.items():
            label = device_class.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
            lines.append(
                f'{full}{{device_class="{label}"}} {value:g}' if label else f"{full} {value:g}"
            )
    return "\n".join(lines) + "\n"


# A server, from its start to SIGTERM or Ctrl-C, after which it ends gracefully.

_LOOK_S = 0.2
_CLOSE_S = 5
_DRAIN_S = 60.0
"""Seconds that judges may take to finish when the server ends."""
_KEEP_ALIVE_S = 75  # a busy client may be slow to send its next request
_SECOND_S = 1.0
_PRUNE_S = 3600.0


def serve(
    location: store.Location,
    evaluator: contract.Evaluator,
    config: Any,
    *,
    host: str,
    port: int,
    device: str,
    workers: int,
    ray: str | None,
    queue_limit: int,
) -> None:
    """Serve verdicts on a lake until SIGTERM or Ctrl-C.

    Args:
        ray: Address of the Ray cluster that judges, or None where this host does.
        queue_limit: Judgments that may wait.

    Raises:
        LakeNotFound: no lake there.
        LakeUnreachable: the lake cannot be written to.
        DeviceUnavailable: a device is not there, there are more workers than cores, or Ray is not
            installed.
        FlywheelError: another server has this queue, the port is taken, or the address is not of
            this machine alone and there are no tokens.
    """
    name = contract.name_of(evaluator)
    start: Callable[[], AbstractContextManager[Sequence[StartedJudge]]]
    if ray is None:
        layout = placement.divide_machine(device, workers)
        start, builders = partial(start_judges, name, layout.places, config), layout.builders
    else:
        ray_cluster.import_ray()
        ray_cluster.check_device(device)
        start, builders = (
            partial(ray_cluster.start_judges, ray, name, device, config, workers),
            (),
        )
    location.require()
    location.require_writable()
    with (
        listen(host, port) as listening,
        open(location.root / "service.lock", "a", opener=partial(os.open, mode=0o600)) as lock,
    ):
        try:  # the kernel lets go of it when this process ends
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FlywheelError(
                f"another server judges for {location.url} on this host",
                "End it first. `--on cuda` and `--ray ADDRESS` give one server several GPUs.",
            ) from error
        address, port = listening.getsockname()[:2]
        database = Database(location)
        on_loopback = is_loopback(address)
        if not on_loopback and not list_tokens(database):
            raise FlywheelError(
                f"{address} can be reached from other machines, and there are no tokens",
                "Create one first: evaluators token create NAME --scope judge",
            )
        # As many open connections as the system allows.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        shown = f"[{address}]" if ":" in address else address
        echo.print_result(f"http://{shown}:{port} judges for {location.url}")
        queue = Queue(database, queue_limit)
        queue.recover()
        routes = ClientRoutes(
            access=Access(database),
            changes=Changes(),
            queue=queue,
            recorder=Recorder(location, evaluator, config, queue),
            reads=LakeReads(location),
            evaluator=evaluator,
            config=config,
        )
        judging = Judging(queue, evaluator, start, builders)
        server = _Server(
            uvicorn.Config(
                build_app(routes, on_loopback=on_loopback),
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on",
                timeout_graceful_shutdown=_CLOSE_S,
                timeout_keep_alive=_KEEP_ALIVE_S,
            ),
            routes,
            judging,
        )

        def on_change(judgement_ids: Sequence[str]) -> None:
            routes.recorder.wake()
            routes.changes.notify(judgement_ids)

        queue.on_change = on_change
        try:
            asyncio.run(server.serve(sockets=[listening]))
        finally:
            judging.stop()
            routes.access.close()
            database.close()


@cache
def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI description of the addresses for clients."""
    return yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text("utf-8"))


def build_app(routes: ClientRoutes, *, on_loopback: bool) -> Starlette:
    """Return the application; on loopback, it answers to names of this machine only."""

    async def show_openapi(_: Request, __: Caller) -> Response:
        return JSONResponse(read_openapi())

    async def explain(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "unknown_address", 405: "unknown_method"}.get(error.status_code, "invalid")
        return refuse(Refused(error.status_code, code, error.detail, "See /v1/openapi.json."))

    @asynccontextmanager
    async def run(_: Starlette) -> AsyncGenerator[None]:
        routes.changes.open()
        thread = threading.Thread(target=routes.recorder.run, name="recorder")
        thread.start()
        keeping = asyncio.create_task(_keep_house(routes))
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            routes.recorder.end()
            await asyncio.to_thread(thread.join)

    return Starlette(
        routes=[
            *routes.list_routes(),
            Route("/v1/openapi.json", routes.access.guard("read", show_openapi)),
        ],
        lifespan=run,
        middleware=[Middleware(Protection, hosts=HOSTS if on_loopback else None)],
        exception_handlers={HTTPException: explain},
    )


async def _keep_house(routes: ClientRoutes) -> None:
    """End what is late, and forget what ended long ago."""
    rounds = 0
    while True:
        try:
            await routes.access.run(routes.queue.expire)
            if rounds % int(_PRUNE_S / _SECOND_S) == 0:
                await routes.access.run(routes.queue.prune)
        except Exception:
            log.exception("the queue cannot be written to; trying again")
        rounds += 1
        await asyncio.sleep(_SECOND_S)


class _Server(uvicorn.Server):
    """A server that first lets judges finish, and ends at once on a second signal."""

    def __init__(self, config: uvicorn.Config, routes: ClientRoutes, judging: Judging) -> None:
        super().__init__(config)
        self._routes, self._judging = routes, judging
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Begin to judge when the server listens."""
        await super().startup(sockets)
        self._judging.start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain on the first signal."""
        if self._routes.changes.is_draining:
            self.should_exit = self.force_exit = True
            return
        echo.print_note("finishing what is being judged; a second signal ends at once")

        def drain() -> None:
            self._routes.changes.drain()
            self._judging.drain()
            self._draining = asyncio.create_task(self._drain())

        asyncio.get_running_loop().call_soon_threadsafe(drain)

    async def _drain(self) -> None:
        loop, routes = asyncio.get_running_loop(), self._routes
        until = loop.time() + _DRAIN_S
        with interrupts.wait_for("the kernels that are being judged"):
            while loop.time() < until:
                counts = await routes.access.run(routes.queue.count_waiting)
                if not any(row["state"] in ("claimed", "answered") for row in counts):
                    break
                await asyncio.sleep(_LOOK_S)
        self.should_exit = True
