"""Health and metrics of a service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import store
from evaluators.service.queue.claims import MOST_REFUSED
from evaluators.service.queue.tokens import Caller
from evaluators.service.server.client_routes import Desk

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

_QUEUED = ("new", "queued")
_METRICS = {
    "queued": ("gauge", "Judgements that wait for a judge."),
    "running": ("gauge", "Judgements that a worker has, or whose rows are being stored."),
    "devices": ("gauge", "Devices of workers that are here and take kernels."),
    "devices_quarantined": ("gauge", "Devices that take no kernels because they are sick."),
    "workers": ("gauge", "Workers that are here."),
    "waiting_requests": ("gauge", "Requests that wait for a judgement to end."),
    "answers_total": ("counter", "Answers of workers that were accepted."),
    "answers_refused_total": ("counter", "Answers of workers that were refused."),
    "claims_lost_total": ("counter", "Claims of workers that ended or fell silent."),
    "judged_seconds_total": ("counter", "Seconds of judging."),
}


class Figures:
    """The endpoints /v1/health and /metrics."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._began = time.monotonic()

    def list_routes(self) -> list[BaseRoute]:
        """Return the routes."""
        from starlette.routing import Route

        guard = self._desk.access.guard
        return [
            Route("/v1/health", guard("read", self._show_health)),
            Route("/metrics", guard("read", self._show_metrics)),
        ]

    def _collect(self) -> dict[str, Any]:
        """Return the state of the service, by device class."""
        desk = self._desk
        classes: dict[str, dict[str, Any]] = {
            name: {"kind": kind, "queued": 0, "running": 0, "devices": 0, "quarantined": {}}
            for name, kind in desk.workers.list_classes().items()
        }
        for row in desk.judgements.count_waiting():
            what = "queued" if row["state"] in _QUEUED else "running"
            classes[row["device_class"]][what] += row["n"]
        for device in desk.workers.list_devices():
            one = classes[device["device_class"]]
            if device["quarantine"] is not None:
                one["quarantined"][device["device_id"]] = device["quarantine"]
            elif device["worker_id"] is not None:
                one["devices"] += 1
        workers = [
            {
                "worker_id": row["worker_id"],
                "host": row["host"],
                "device_class": row["device_class"],
                "claims": row["claims"],
                "silent_s": round(time.time() - row["seen_at"], 1),
                "is_refused": row["refused"] >= MOST_REFUSED,
            }
            for row in desk.workers.list_all()
        ]
        return {"classes": classes, "workers": workers}

    async def _show_health(self, _: Request, __: Caller) -> Response:
        from starlette.responses import JSONResponse

        desk = self._desk
        state = await desk.access.run(self._collect)
        has_devices = any(one["devices"] for one in state["classes"].values())
        status = "ok" if has_devices and desk.recorder.fault is None else "degraded"
        if desk.changes.is_draining:
            status = "draining"
        content = {
            "status": status,
            "version": store.__version__,
            "evaluator": desk.evaluator_name,
            "uptime_s": round(time.monotonic() - self._began, 1),
            "lake_fault": desk.recorder.fault,
            **state,
        }
        return JSONResponse(content)

    async def _show_metrics(self, _: Request, __: Caller) -> Response:
        from starlette.responses import PlainTextResponse

        desk = self._desk
        state = await desk.access.run(self._collect)
        counters = await desk.access.run(desk.claims.read_counters)
        values: dict[str, dict[str, float]] = {
            "queued": {}, "running": {}, "devices": {}, "devices_quarantined": {},
            "workers": {"": len(state["workers"])},
            "waiting_requests": {"": desk.changes.waiting},
            "answers_total": {"": counters.get("answers", 0)},
            "answers_refused_total": {"": counters.get("answers_refused", 0)},
            "claims_lost_total": {"": counters.get("claims_lost", 0)},
            "judged_seconds_total": {"": counters.get("judged_s", 0)},
        }  # fmt: skip
        for name, one in state["classes"].items():
            for what in ("queued", "running", "devices"):
                values[what][name] = one[what]
            values["devices_quarantined"][name] = len(one["quarantined"])
        return PlainTextResponse(
            format_metrics(values), media_type="text/plain; version=0.0.4; charset=utf-8"
        )


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
