"""Protects the pages: who may ask, what a browser may load, and when a request has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine. A page of another site that makes its own name point here (DNS rebinding)
sends that name."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Protection:
    """Middleware that refuses foreign hosts, and adds HEADERS to every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = HOSTS) -> None:
        """Take the application, and the names that it answers to; None means any name."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                added = [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in own
                ]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        given = dict(scope["headers"])
        if self._hosts is not None and _read_host(given.get(b"host", b"")) not in self._hosts:
            from starlette.responses import PlainTextResponse

            refusal = PlainTextResponse(
                "This server answers to localhost and 127.0.0.1 only.\n", status_code=421
            )
            await refusal(scope, receive, send_protected)
        elif scope["method"] in ("GET", "HEAD"):
            # Run a request without a body; cancel it when its client goes away.
            gone = asyncio.Event()
            first = True

            async def receive_nothing() -> Message:
                nonlocal first
                if first:
                    first = False
                    return {"type": "http.request", "body": b"", "more_body": False}
                await gone.wait()
                return {"type": "http.disconnect"}

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                gone.set()

            answering = asyncio.ensure_future(self._app(scope, receive_nothing, send_protected))
            watching = asyncio.ensure_future(watch())
            try:
                await asyncio.wait([answering, watching], return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    answering.cancel()
                await asyncio.wait([answering])
            finally:
                watching.cancel()
                answering.cancel()
                await asyncio.gather(watching, return_exceptions=True)
            if not answering.cancelled():
                answering.result()
        else:
            await self._app(scope, receive, send_protected)


def is_own_origin(headers: dict[str, str]) -> bool:
    """Whether a request with a body comes from a page of this server."""
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == headers.get("host")


def _read_host(header: bytes) -> str:
    try:
        return urlsplit(f"//{header.decode('ascii')}").hostname or ""
    except ValueError:  # not ASCII, or brackets without an address
        return ""
