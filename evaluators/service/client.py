"""The client of a judge service, which trainers and adapters of RL frameworks use.

A service that is full, draining or away is asked again until the deadline. What was not judged is a
judgment without a verdict, never a score.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evaluators.scheduling.pool import Verdict
from store.endpoint import Address
from store.errors import FlywheelError

if TYPE_CHECKING:
    import httpx2

TOKEN = "FLYWHEEL_JUDGE_TOKEN"
"""Environment variable with the token for a judge service."""
_TEMPORARY = (408, 429, 500, 502, 503, 504)
_WAIT_S = 60.0
_GRACE_S = 30.0
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_MOST_CONNECTIONS = 512


@dataclass(frozen=True, kw_only=True)
class SubmittedKernel:
    """A kernel to judge: one file, or several."""

    code: str
    path: str = "kernel.py"
    files: tuple[tuple[str, str], ...] = ()
    """Paths and texts of further files."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The end of one request."""

    id: str
    verdict: Verdict | None
    """None where the kernel was not judged, which says nothing about it."""
    reason: str | None = None
    """Why there is no verdict, such as queue_deadline, worker_lost or unreachable."""
    message: str | None = None
    queued_s: float = 0.0
    judged_s: float | None = None
    source: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the service said."""


class Unreachable(FlywheelError):
    """The server does not answer, or refuses the request; `status` is its HTTP status if any."""

    def __init__(self, message: str, hint: str | None = None, *, status: int | None = None) -> None:
        super().__init__(message, hint)
        self.status = status


def read_token() -> str | None:
    """Return the token in the environment, or None."""
    return os.environ.get(TOKEN) or None


def build_headers(url: str, token: str | None) -> dict[str, str]:
    """Return the headers of every request. Raises FlywheelError for a URL that cannot be used."""
    Address.of(url)
    headers = {"accept": "application/json", "content-type": "application/json"}
    return headers if token is None else headers | {"authorization": f"Bearer {token}"}


class Client:
    """Requests to one judge service, from any number of event loops.

    Args:
        url: Of the service, such as http://HOST:8770.
        token: With the scope judge; None reads FLYWHEEL_JUDGE_TOKEN.
        device_class: Name of a device class, or cpu or cuda; None where the service has one.
        precision: What float32 may be computed in; None for the service's.
        deadline_s: Most seconds that a caller waits for an answer in all.

    Raises FlywheelError: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        device_class: str | None = None,
        precision: str | None = None,
        deadline_s: float = 7200.0,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = build_headers(url, token or read_token())
        given = {"device_class": device_class, "policy": precision}
        self._options = {name: value for name, value in given.items() if value is not None}
        self.device_class = device_class
        """Name of the device class that it asks for, or None."""
        self._deadline_s = deadline_s
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            weakref.WeakKeyDictionary()
        )

    async def judge(self, task: str, kernel: SubmittedKernel | str) -> Judgement:
        """Return the judgment of a kernel on a task, by id or name, when it has ended.

        Raises Unreachable: the service refuses the request itself: its token, task or form.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._deadline_s
        body = json.dumps(write_request(task, kernel) | self._options).encode()
        failure, judgement_id, attempt = "no answer", "", 0
        while (left_s := until - loop.time()) > 0:
            wait = f"wait={min(_WAIT_S, left_s):.1f}"
            try:
                if judgement_id:
                    view = await self._request("GET", f"/v1/judgements/{judgement_id}?{wait}")
                else:
                    view = await self._request("POST", f"/v1/judgements?{wait}", body)
            except _Away as away:
                failure, attempt = str(away), attempt + 1
                pause_s = min(_PAUSE_S * 2 ** min(attempt, 10), _LONGEST_PAUSE_S)
                pause_s = away.pause_s or pause_s * random.uniform(0.5, 1.0)
                await asyncio.sleep(min(pause_s, max(until - loop.time(), 0)))
                continue
            except Unreachable as refusal:
                if refusal.status != 404 or not judgement_id:
                    raise
                judgement_id = ""  # the service has a new queue
                continue
            judgement_id, attempt = view["id"], 0
            if view["status"] in ("done", "fault", "cancelled"):
                return read_judgement(view)
            failure = f"it is still {view['status']}"
        return Judgement(
            id=judgement_id,
            verdict=None,
            reason="client_deadline" if judgement_id else "unreachable",
            message=f"no verdict within {self._deadline_s:g} s: {failure}",
        )

    async def get(self, address: str) -> dict[str, Any]:
        """Return the JSON at an address, such as /v1/health.

        Raises Unreachable: the service is away, or refuses the request.
        """
        try:
            return await self._request("GET", address)
        except _Away as away:
            raise Unreachable(
                f"{self._url} does not answer: {away}",
                "Check the URL, and start the service with: evaluators serve",
            ) from away

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def _request(
        self, method: str, address: str, content: bytes | None = None
    ) -> dict[str, Any]:
        """Return the answer to one request. Raises _Away, Unreachable."""
        import httpx2

        try:
            reply = await self._open().request(method, address, content=content)
        except httpx2.TransportError as error:
            raise _Away(f"{type(error).__name__}: {error}"[:300]) from error
        if reply.is_success:
            return reply.json()
        status = reply.status_code
        try:
            error = reply.json()["error"]
            message, hint = str(error["message"]), error.get("hint")
        except (ValueError, KeyError, TypeError):
            message = "its answer is not that of a judge service"
            hint = "Check the URL; another program may listen there."
        message = f"{self._url} refuses the request ({status}): {message[:500]}"
        if status in _TEMPORARY:
            text = reply.headers.get("retry-after") or ""
            raise _Away(message, min(float(text), _LONGEST_PAUSE_S) if text.isdigit() else None)
        raise Unreachable(message, None if hint is None else str(hint)[:500], status=status)

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = httpx2.AsyncClient(
                base_url=self._url,
                headers=self._headers,
                timeout=httpx2.Timeout(_WAIT_S + _GRACE_S, pool=None),
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=_MOST_CONNECTIONS),
            )
        return client


class _Away(Exception):
    """The service cannot answer now; `pause_s` is when it wants to be asked again."""

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


def read_judgement(view: Mapping[str, Any]) -> Judgement:
    """Return the judgment in an answer of the service."""
    verdict = None
    if view["status"] == "done":
        given = view["verdict"]
        values = {name: given[name] for name in Verdict.__dataclass_fields__ if name in given}
        for name in ("flags", "findings"):
            values[name] = tuple(values[name])
        verdict = Verdict(**values, fresh=view["fresh"])
    fault = view["fault"] or {}
    return Judgement(
        id=view["id"],
        verdict=verdict,
        reason=None if verdict else fault.get("reason", view["status"]),
        message=fault.get("message"),
        queued_s=view["queued_s"],
        judged_s=view["judged_s"],
        source=view,
    )


def write_request(task: str, kernel: SubmittedKernel | str) -> dict[str, Any]:
    """Return the fields of a request that name its task and kernel."""
    if isinstance(kernel, str):
        return {"task": task, "code": kernel}
    files: Sequence[dict[str, str]] = [{"path": path, "code": code} for path, code in kernel.files]
    return {"task": task, "code": kernel.code, "path": kernel.path, "files": files}
