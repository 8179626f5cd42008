"""Who may send a request, how much of it is read, and how refusals look.

Tokens are created by a command, stored as hashes, and revoked at once.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, TypeVarTuple, cast, get_args

from evaluators.service.queue import Database
from evaluators.service.submission import Refused
from store.errors import FlywheelError, ImportFailed, UnknownName
from store.foreign import json_text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Answer: TypeAlias = "Callable[[Request, Caller], Awaitable[Response]]"
Scope: TypeAlias = Literal["read", "judge", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_PREFIX = "fw"
_FORM = re.compile(r"fw_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BODY_S = 30.0
"""Seconds in which a client must have sent its body."""
_NOBODY = hashlib.sha256(b"").hexdigest()


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


def create_token(database: Database, client: str, scopes: Sequence[Scope]) -> str:
    """Store the hash of a new token and return the token, which nothing shows again.

    Shares and generations carry the client's name. Raises FlywheelError: the name cannot be used,
    or a token of this name exists.
    """
    if not _CLIENT.fullmatch(client):
        raise FlywheelError(
            f"{client!a} cannot name a client",
            "Use up to 64 letters, digits, dots, hyphens and underscores.",
        )
    token_id = secrets.token_hex(6)
    token = f"{_PREFIX}_{token_id}_{secrets.token_urlsafe(32)}"
    with database.transaction() as connection:
        if connection.execute("SELECT 1 FROM tokens WHERE client = ?", [client]).fetchone():
            raise FlywheelError(
                f"{client} has a token already", "Revoke it first, or choose another name."
            )
        connection.execute(
            "INSERT INTO tokens (token_id, client, scopes, hash, created_at)"
            " VALUES (?, ?, ?, ?, ?)",
            [token_id, client, " ".join(dict.fromkeys(scopes)), hash_token(token), time.time()],
        )
    return token


def list_tokens(database: Database) -> list[dict[str, Any]]:
    """Return the tokens without their hashes."""
    return database.read("SELECT client, scopes, created_at FROM tokens ORDER BY client")


def revoke_token(database: Database, client: str) -> None:
    """Delete the token of a client; requests with it fail from now on. Raises UnknownName."""
    with database.transaction() as connection:
        deleted = connection.execute("DELETE FROM tokens WHERE client = ?", [client]).rowcount
    if not deleted:
        known = [row["client"] for row in list_tokens(database)]
        raise UnknownName.among("token", client, known)


def hash_token(token: str) -> str:
    """Return the hash that is stored. A token has 256 random bits, so a plain hash suffices."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_scopes(words: Sequence[str]) -> tuple[Scope, ...]:
    """Return scopes by their names. Raises UnknownName."""
    for word in words:
        if word not in SCOPES:
            raise UnknownName.among("scope", word, SCOPES)
    return cast("tuple[Scope, ...]", tuple(words))


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
        return json_text.parse(body.decode("utf-8"), "the body")
    except UnicodeDecodeError as error:
        raise Refused(422, "invalid", "the body is not UTF-8") from error
    except ImportFailed as error:
        raise Refused(422, "invalid", error.message[:300]) from error


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
