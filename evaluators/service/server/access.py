"""Who may send a request, how much of it is read, and how refusals look."""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, TypeVarTuple

from evaluators.service.queue import tokens
from evaluators.service.queue.database import Database
from evaluators.service.queue.submission import Refused
from evaluators.service.queue.tokens import LOCAL, Caller, Scope
from store.errors import FlywheelError, ImportFailed
from store.foreign import json_text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Answer: TypeAlias = "Callable[[Request, Caller], Awaitable[Response]]"

OWN_WORKER = "serve"
"""Client name of the worker that the server itself starts; no token can have it."""
_BODY_S = 30.0
"""Seconds in which a client must have sent its body."""


class Access:
    """Checks callers, and runs the queue's transactions in a thread of their own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._thread = ThreadPoolExecutor(1, "queue")
        self.worker_token = secrets.token_urlsafe(32)
        """Token of the worker on this host, which ends with this process."""

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
        """Return who sends a request. Raises Refused (401)."""
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() == "bearer" and token:
            if hmac.compare_digest(token.encode(), self.worker_token.encode()):
                return Caller(OWN_WORKER, frozenset({"worker"}))
            caller = tokens.find_caller(self._database, token.strip())
            if caller is not None:
                return caller
        elif header is None and not tokens.list_tokens(self._database):
            return LOCAL  # a server without tokens listens to this machine only
        raise Refused(
            401,
            "unauthorized",
            "the token is missing, wrong or revoked",
            "Send the header Authorization: Bearer TOKEN. `evaluators token create` makes one.",
        )


def refuse(error: Exception) -> Response:
    """Return the answer to a request that failed. It says nothing of what is inside the server."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse

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
    body = await read_body(request, most_bytes)
    try:
        return json_text.parse(body.decode("utf-8"), "the body")
    except UnicodeDecodeError as error:
        raise Refused(422, "invalid", "the body is not UTF-8") from error
    except ImportFailed as error:
        raise Refused(422, "invalid", error.message[:300]) from error


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return the body of a request. Raises Refused (408, 413, 415)."""
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
    return bytes(body)


def read_wait(request: Request, most_s: float) -> float:
    """Return the seconds in the parameter `wait`, at most `most_s`. Raises Refused (422)."""
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise Refused(422, "invalid", "wait must be a number of seconds, 0 or more")
    return min(seconds, most_s)
