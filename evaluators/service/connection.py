"""A connection to a judge service: requests that are tried again while the server is away."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from store.endpoint.keys import Address
from store.errors import FlywheelError

if TYPE_CHECKING:
    import httpx2

TOKEN = "FLYWHEEL_JUDGE_TOKEN"
"""Environment variable with the token for a judge service."""
_TEMPORARY = (408, 429, 500, 502, 503, 504)
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_TIMEOUT_S = 60.0


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


class Connection:
    """Requests of one worker to one server. Use as a context manager.

    Args:
        url: Of the server, such as http://HOST:8770.
        token: Sent to this server only; None sends none.
    """

    def __init__(self, url: str, token: str | None) -> None:
        import httpx2

        self._url = url.rstrip("/")
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=8)
        self._client = httpx2.Client(
            base_url=self._url,
            headers=build_headers(url, token),
            timeout=_TIMEOUT_S,
            follow_redirects=False,
            limits=limits,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, address: str) -> dict[str, Any]:
        """Return the answer to a GET. Raises Unreachable."""
        return self._request("GET", address, None, tries=5)

    def post(
        self, address: str, body: Mapping[str, Any], *, tries: int | None = 5
    ) -> dict[str, Any]:
        """Return the answer to a POST.

        Args:
            address: Path.
            body: Sent as JSON.
            tries: Number of tries while the server is away; None tries for ever.

        Raises:
            Unreachable: the server is away, or refuses the request.
        """
        return self._request("POST", address, json.dumps(body).encode(), tries=tries)

    def try_request(self, method: str, address: str, body: Mapping[str, Any] | None = None) -> None:
        """Send a request once, and ignore what comes of it."""
        content = None if body is None else json.dumps(body).encode()
        with contextlib.suppress(Unreachable):
            self._request(method, address, content, tries=1)

    def _request(
        self, method: str, address: str, content: bytes | None, *, tries: int | None
    ) -> dict[str, Any]:
        import httpx2

        attempt = 0
        while True:
            attempt += 1
            try:
                reply = self._client.request(method, address, content=content)
            except httpx2.TransportError as error:
                failure = Unreachable(
                    f"no judge service answers at {self._url}: {type(error).__name__}",
                    "Check the URL, and start the service with: evaluators serve",
                )
            else:
                if reply.is_success:
                    return reply.json()
                failure = read_refusal(self._url, reply)
                if reply.status_code not in _TEMPORARY:
                    raise failure
            if attempt == tries:
                raise failure
            pause_s = min(_PAUSE_S * 2 ** min(attempt, 10), _LONGEST_PAUSE_S)
            time.sleep(pause_s * random.uniform(0.5, 1.0))


def read_refusal(url: str, reply: httpx2.Response) -> Unreachable:
    """Return the error in an answer of a server."""
    try:
        error = reply.json()["error"]
        message, hint = str(error["message"]), error.get("hint")
    except (ValueError, KeyError, TypeError):
        message = "its answer is not that of a judge service"
        hint = "Check the URL; another program may listen there."
    status = reply.status_code
    return Unreachable(
        f"{url} refuses the request ({status}): {message[:500]}",
        None if hint is None else str(hint)[:500],
        status=status,
    )
