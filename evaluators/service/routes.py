"""The addresses for clients: judgments, tasks, health, metrics and rewards; who waits for what."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import store
from evaluators.scheduling import contract
from evaluators.service.access import Access, Caller, read_json, read_wait
from evaluators.service.client import read_judgement, write_request
from evaluators.service.completions import Scored, check_rule, parse_kernel, score_judgement
from evaluators.service.lake_reads import LakeReads
from evaluators.service.queue import Queue, Row, Ticket
from evaluators.service.recorder import Recorder
from evaluators.service.submission import (
    LONGEST_S,
    Refused,
    Submission,
    choose_class,
    parse_submission,
)
from store.errors import UnknownName

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
    left_s = until - asyncio.get_running_loop().time()
    if left_s > 0:
        try:
            await asyncio.wait_for(event.wait(), left_s)
        except TimeoutError:
            return


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
        from starlette.routing import Route

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
                if submission.policy is not None and not hasattr(self.config, "policy"):
                    why = f"{self.evaluator_name} has no policies"
                    raise Refused(422, "invalid", why, "Leave out the field policy.")
                ticket = Ticket(
                    submission=submission,
                    task_id=str(task_id),
                    device_class=choose_class(submission.device_class, classes),
                    policy=submission.policy or contract.get_policy(self.config),
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
        """Return a judgment when it has ended or the seconds are over."""
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
        from starlette.responses import Response

        from store.commandline.escape import encode_json

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
            raise Refused(
                422, "invalid", f"after must be 0 or more, and limit from 1 to {_MOST_TASKS}"
            )
        reads = self.reads
        rows = await asyncio.to_thread(reads.list_tasks, query.get("suite"), after, most)
        return _answer({"tasks": rows, "next": after + most if len(rows) == most else None})

    async def _show_task(self, request: Request, _: Caller) -> Response:
        reads = self.reads
        task_id = await asyncio.to_thread(reads.find_task, request.path_params["id"])
        return _answer(await asyncio.to_thread(reads.read_task, task_id))

    def _collect(self) -> dict[str, dict[str, Any]]:
        """Return the state of the service, by device class."""
        classes: dict[str, dict[str, Any]] = {
            name: {"kind": kind, "queued": 0, "running": 0, "devices": 0, "quarantined": {}}
            for name, kind in self.queue.list_classes().items()
        }
        for row in self.queue.count_waiting():
            what = "queued" if row["state"] in _QUEUED else "running"
            classes[row["device_class"]][what] += row["n"]
        for device in self.queue.list_devices():
            one = classes[device["device_class"]]
            if device["quarantine"] is not None:
                one["quarantined"][device["device_id"]] = device["quarantine"]
            elif device["is_here"]:
                one["devices"] += 1
        return classes

    async def _show_health(self, _: Request, __: Caller) -> Response:
        from starlette.responses import JSONResponse

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
        from starlette.responses import PlainTextResponse

        classes = await self.access.run(self._collect)
        counters = await self.access.run(self.queue.read_counters)
        values: dict[str, dict[str, float]] = {
            "queued": {}, "running": {}, "devices": {}, "devices_quarantined": {},
            "waiting_requests": {"": self.changes.waiting},
            "answers_total": {"": counters.get("answers", 0)},
            "claims_lost_total": {"": counters.get("claims_lost", 0)},
            "judged_seconds_total": {"": counters.get("judged_s", 0)},
        }  # fmt: skip
        for name, one in classes.items():
            for what in ("queued", "running", "devices"):
                values[what][name] = one[what]
            values["devices_quarantined"][name] = len(one["quarantined"])
        return PlainTextResponse(
            format_metrics(values), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    # What RL frameworks ask in forms of their own: slime's remote_rm, and NeMo Gym. A completion
    # without code has the reward 0. A kernel that was not judged gives 503 and no reward.

    async def _give_reward(self, request: Request, caller: Caller) -> Response:
        """Answer slime: the body is prompt, response and label, and the answer is the number."""
        from starlette.responses import JSONResponse

        value = await _read_object(request)
        task = _read_field(value, "label")
        scored = await self._score(
            request, caller, task, _read_field(value, "response"), REWARD_WAIT_S
        )
        return JSONResponse(scored.reward)

    async def _seed_session(self, request: Request, _: Caller) -> Response:
        """Answer NeMo Gym: a session has no state here."""
        from starlette.responses import JSONResponse

        await read_json(request, _MOST_ANSWER_BYTES)
        return JSONResponse({})

    async def _verify(self, request: Request, caller: Caller) -> Response:
        """Answer NeMo Gym: the body is a dataset row with `task` and the model's response."""
        from starlette.responses import JSONResponse

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
            raise Refused(422, "invalid", error.message, error.hint) from error
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
        raise Refused(422, "invalid", "the body must be an object")
    return cast("Row", value)


def _read_field(value: Row, name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise Refused(422, "invalid", f"{name} must be a text")
    return text


def _read_response(value: Any) -> str:
    """Return the last text of a response in OpenAI's Responses form."""
    texts: list[str] = []
    output = cast("Row", value).get("output") if isinstance(value, dict) else None
    for item in cast("list[Any]", output) if isinstance(output, list) else []:
        if isinstance(item, dict) and cast("Row", item).get("type") == "message":
            content = cast("Row", item).get("content")
            for part in cast("list[Any]", content) if isinstance(content, list) else []:
                if isinstance(part, dict) and isinstance(cast("Row", part).get("text"), str):
                    texts.append(cast("Row", part)["text"])
    if not texts:
        raise Refused(422, "invalid", "response has no message with a text")
    return texts[-1]


def _answer(content: Row, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

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
