"""The addresses for workers. A worker is a trusted host with a token of its own.

Rows that a worker sends pass the same checks as those of a judge process of `evaluators run`: rows
of another kernel, task, device, evaluator or table are refused, and all get new identities.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import store
from evaluators.judging.case import Case
from evaluators.scheduling import answers, contract
from evaluators.service.queue.claims import LEASE_S, Claim
from evaluators.service.queue.judgements import Row
from evaluators.service.queue.submission import Refused
from evaluators.service.queue.tokens import Caller
from evaluators.service.server.access import read_body, read_wait
from evaluators.service.server.changes import wait_for
from evaluators.service.server.client_routes import Desk
from store.errors import FlywheelError, RowsRejected

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

MOST_BYTES = 64 << 20
"""Largest answer, as from a judge process."""
HEARTBEAT_S = 2.0
_MOST_DEVICES = 64
_MOST_CLAIMS = 64
_LONGEST_WAIT_S = 20.0


class WorkerRoutes:
    """The endpoints."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def list_routes(self) -> list[BaseRoute]:
        """Return the routes."""
        from starlette.routing import Route

        guard, one = self._desk.access.guard, "/v1/workers/{id}"
        return [
            Route("/v1/workers/order", guard("worker", self._show_order)),
            Route("/v1/workers", guard("worker", self._join), methods=["POST"]),
            Route(f"{one}/claim", guard("worker", self._claim), methods=["POST"]),
            Route(f"{one}/heartbeat", guard("worker", self._keep_alive), methods=["POST"]),
            Route(f"{one}/answers", guard("worker", self._take_answer), methods=["POST"]),
            Route(one, guard("worker", self._leave), methods=["DELETE"]),
        ]

    async def _show_order(self, _: Request, __: Caller) -> Response:
        """Say what to judge with."""
        return _reply(
            {
                "version": store.__version__,
                "evaluator": contract.name_of(self._desk.evaluator),
                "evaluator_version": self._desk.evaluator.VERSION,
                "config": asdict(self._desk.config),
                "heartbeat_s": HEARTBEAT_S,
                "lease_s": LEASE_S,
            }
        )

    async def _join(self, request: Request, caller: Caller) -> Response:
        value = await _read_object(request)
        devices = value.get("devices")
        if not isinstance(devices, list) or not 0 < len(cast("list[Any]", devices)) < _MOST_DEVICES:
            raise Refused(422, "invalid", "a worker needs devices")
        host = str(value.get("host"))[:200]
        rows = [_check_device(row, host) for row in cast("list[Any]", devices)]
        if len({(row["name"], row["kind"]) for row in rows}) > 1:
            raise Refused(
                422, "mixed_devices", "the devices of a worker must be of one kind",
                "Start one worker for each kind: evaluators join --device cuda:0.",
            )  # fmt: skip
        desk = self._desk
        worker_id = await desk.access.run(desk.workers.join, caller.client, host, rows)
        desk.recorder.wake()
        return _reply({"worker_id": worker_id}, 201)

    async def _claim(self, request: Request, caller: Caller) -> Response:
        """Lease cases to a worker; wait for the first of them."""
        desk, worker = self._desk, await self._find(request, caller)
        value = await _read_object(request)
        capacity, ahead = (
            min(max(int(value.get(name) or 0), 0), _MOST_CLAIMS) for name in ("capacity", "ahead")
        )
        holding, loaded = _read_ids(value.get("holding")), value.get("loaded")
        until = asyncio.get_running_loop().time() + read_wait(request, _LONGEST_WAIT_S)
        await desk.access.run(desk.claims.release_unknown, worker["worker_id"], holding)
        claims: list[Claim] = []
        while not desk.changes.is_draining:
            work = desk.changes.work
            claims = await desk.access.run(
                desk.claims.claim, worker["worker_id"], capacity, ahead, loaded
            )
            if claims or asyncio.get_running_loop().time() >= until:
                break
            await wait_for(work, until)
        return _reply({"cases": [asdict(one) for one in claims], "drain": desk.changes.is_draining})

    async def _keep_alive(self, request: Request, caller: Caller) -> Response:
        desk, worker = self._desk, await self._find(request, caller)
        value = await _read_object(request)
        sick = value.get("quarantine")
        quarantine = {
            str(device): None if why is None else str(why)[:300]
            for device, why in (cast("Row", sick) if isinstance(sick, dict) else {}).items()
        }
        running = _read_ids(value.get("running"))
        mine = await desk.access.run(
            desk.claims.keep_alive, worker["worker_id"], running, quarantine
        )
        return _reply({"claims": mine, "drain": desk.changes.is_draining})

    async def _take_answer(self, request: Request, caller: Caller) -> Response:
        """Check the rows of a judgment and store them; the lake's thread appends them."""
        desk, worker = self._desk, await self._find(request, caller)
        value = await _read_object(request)
        judgement_id, lease = str(value.get("judgement_id")), str(value.get("lease"))
        judgement = await desk.access.run(
            desk.claims.find_claimed, worker["worker_id"], judgement_id, lease
        )
        if judgement is None:
            raise Refused(409, "not_yours", "another worker has this judgement, or it has ended")
        devices = await desk.access.run(desk.workers.list_devices)
        device = next((d for d in devices if d["device_id"] == value.get("device_id")), None)
        if device is None or device["device_class"] != judgement["device_class"]:
            raise Refused(422, "unknown_device", "no such device has joined in this class")
        answer, refused = await asyncio.to_thread(self._check_answer, value, judgement)
        taken = await desk.access.run(
            lambda: desk.claims.answer(judgement, answer, refused=refused)
        )
        if not taken:
            raise Refused(409, "not_yours", "another worker has this judgement, or it has ended")
        desk.recorder.wake()
        return _reply({"accepted": not refused})

    def _check_answer(
        self, value: Mapping[str, Any], judgement: Mapping[str, Any]
    ) -> tuple[Row, bool]:
        """Return what to store of an answer, and whether its rows were refused."""
        case, judged_s = json.loads(judgement["case"]), value.get("judged_s")
        if isinstance(judged_s, bool) or not isinstance(judged_s, int | float) or judged_s < 0:
            raise Refused(422, "invalid", "judged_s must be a number of seconds")
        answer = {"device_id": value["device_id"], "judged_s": float(judged_s), "tables": None}
        if value.get("tables") is None:
            answer |= {"fault": str(value.get("fault"))[:2000], "is_lost": True}
            return answer | {"unfit": value.get("unfit") is True}, False
        evaluator = self._desk.evaluator
        subject = answers.Subject(
            Case.read(case), str(value["device_id"]), contract.name_of(evaluator), evaluator.VERSION
        )
        try:
            return answer | {"tables": answers.accept_judgement(value["tables"], subject)}, False
        except answers.RefusedAnswer as error:
            return answer | {"fault": f"the worker's answer is refused: {error}"}, True

    async def _leave(self, request: Request, caller: Caller) -> Response:
        desk, worker = self._desk, await self._find(request, caller)
        await desk.access.run(lambda: desk.claims.leave(worker["worker_id"], lost=False))
        return _reply({})

    async def _find(self, request: Request, caller: Caller) -> Row:
        desk = self._desk
        worker = await desk.access.run(desk.workers.find, request.path_params["id"], caller.client)
        if worker is None:
            raise Refused(404, "unknown_worker", "this worker is not known any more", "Join again.")
        return worker


async def _read_object(request: Request) -> Row:
    """Return the object of a body. Workers' numbers may be infinite, as errors of kernels are."""
    body = await read_body(request, MOST_BYTES)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(422, "invalid", "the body is not JSON") from error
    if not isinstance(value, dict):
        raise Refused(422, "invalid", "the body must be an object")
    return cast("Row", value)


def _read_ids(value: Any) -> list[str]:
    return [str(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _check_device(value: Any, host: str) -> Row:
    """Return a row of `devices`. Raises Refused where it breaks the table's rules."""
    row: Row = {**value, "host": host} if isinstance(value, dict) else {}
    for name in ("device_id", "name", "model"):
        if not isinstance(row.get(name), str) or not row[name]:
            raise Refused(422, "invalid", f"a device needs the text {name}")
    if row.get("kind") not in ("cpu", "cuda"):
        raise Refused(422, "invalid", "the kind of a device is cpu or cuda")
    try:
        store.conform(store.catalog.load().table("devices"), [row])
    except (RowsRejected, FlywheelError) as error:
        raise Refused(422, "invalid", f"a device breaks a rule: {error.message[:300]}") from error
    return row


def _reply(content: Row, status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(content, status_code=status)
