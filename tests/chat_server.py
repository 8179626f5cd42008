"""A real server on loopback that speaks OpenAI's chat completions, with faults on request."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Fault: TypeAlias = Callable[["dict[str, Any]"], Response | dict[str, Any]]


def completion(
    texts: list[str],
    finish_reason: str = "stop",
    usage: dict[str, int] | None = None,
    **message: Any,
) -> dict[str, Any]:
    """Return the body of an answer with one choice per text."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": place,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text} | message,
            }
            for place, text in enumerate(texts)
        ],
        "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5 * len(texts)},
    }


def status(code: int, message: str = "not now", **headers: str) -> Fault:
    """Return a fault that answers with a status."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda asked: JSONResponse({"error": {"message": message}}, code, named)


def body(data: bytes, kind: str = "application/json") -> Fault:
    """Return a fault that answers with these bytes."""
    return lambda asked: Response(data, media_type=kind)


@dataclass
class ChatServer:
    """Answers each request by the next fault, and once there is none by `answer`."""

    answer: Callable[[dict[str, Any]], Response | dict[str, Any]]
    faults: list[Fault] = field(default_factory=list[Fault])
    delay_s: float = 0.0
    awaited: int = 1
    """Requests that must have been there at once before any is answered."""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Bodies of the requests, in the order in which they came."""
    keys: list[str] = field(default_factory=list[str])
    most_at_once: int = 0
    _now: int = 0

    def __enter__(self) -> ChatServer:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        app = Starlette(routes=[Route("/v1/chat/completions", self._serve, methods=["POST"])])
        config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *error: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()

    async def _serve(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        self.requests.append(asked)
        self.keys.append(request.headers.get("authorization", ""))
        fault = self.faults.pop(0) if self.faults else self.answer
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            while self.most_at_once < self.awaited:
                await asyncio.sleep(0.005)
            await asyncio.sleep(self.delay_s)
        finally:
            self._now -= 1
        made = fault(asked)
        return made if isinstance(made, Response) else JSONResponse(made)
