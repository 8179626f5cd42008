"""Client for servers of OpenAI's chat completions API, and the keys that each server gets.

Trainers sample from such servers, and the audit asks them about kernels. Everything a server sends
is foreign text. One deadline covers an answer from the first try to the last byte. The size of an
answer is limited, and redirects are not followed. A key goes only to the host that it is given for.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from store.errors import FlywheelError

KEY = "OPENAI_API_KEY"
"""Variable with the key for OpenAI's own host, or for another host that --key-env gives it."""
_PORTS = {"http": 80, "https": 443}
_USAGE = "Write --key-env HOST=NAME or HOST:PORT=NAME, where NAME is an environment variable."


@dataclass(frozen=True)
class Address:
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def of(cls, url: str) -> Address:
        """Return the address of a URL; the port defaults to that of its scheme.

        >>> str(Address.of("https://api.example.com/v1")), str(Address.of("http://[::1]:8000/v1"))
        ('api.example.com:443', '[::1]:8000')

        Raises FlywheelError if it is not an http or https URL, or it contains what may be a secret.
        """
        hint = "Write http(s)://HOST/v1."
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise FlywheelError(f"{url} is no URL: {error}", hint) from None
        if parts.username or parts.password or parts.query:
            raise FlywheelError(
                "the URL of an endpoint contains a user, a password or a query",
                f"Keys come from the environment ({KEY}, or --key-env HOST=NAME).",
            )
        if parts.scheme not in _PORTS or not url.isprintable() or " " in url:
            raise FlywheelError(f"{url} is no URL of an endpoint", hint)
        if not host:
            raise FlywheelError(f"{url} names no host", hint)
        return cls(host.removesuffix("."), port or _PORTS[parts.scheme])


_OPENAI = Address("api.openai.com", _PORTS["https"])


class Keys:
    """The environment variables with keys, by the host or the address of each."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        """Read HOST=NAME and HOST:PORT=NAME.

        Raises FlywheelError if one has another form, or two are for the same host and port.
        """
        self._names: dict[tuple[str, int | None], str] = {}
        for given in named:
            where, _, name = given.rpartition("=")
            try:
                parts = urlsplit(f"//{where}")
                host, port = parts.hostname, parts.port
            except ValueError:
                host = port = None
            is_plain = where.isprintable() and not any(char in where for char in "/?#@\\ ")
            if not (host and name and is_plain):
                raise FlywheelError(f'"{given}" names no host and variable', _USAGE)
            key = (host.removesuffix("."), port)
            if key in self._names:
                raise FlywheelError(f"--key-env names {where} twice", "Give each host once.")
            self._names[key] = name

    def key_for(self, url: str) -> str | None:
        """Return the key for a server from the environment, or None if no variable is given for it.

        A host without a port means the default port of the URL's scheme. OPENAI_API_KEY goes to
        https://api.openai.com, and to another host only if --key-env names that host.

        Raises FlywheelError if the variable is not set, or its value cannot be a key.
        """
        name = self._names.get(self._match(url))
        key = os.environ.get(name or KEY)
        if name is None:
            is_openai = Address.of(url) == _OPENAI and url.startswith("https:")
            if not is_openai or not key:
                return None
            name = KEY
        if not key:
            raise FlywheelError(
                f"{name} is not set, but --key-env gives it for {Address.of(url).host}",
                f"Set it: export {name}=…",
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise FlywheelError(
                f"{name} holds characters that no key has", "Look for a newline or a space in it."
            )
        return key

    def check_used(self, urls: Iterable[str]) -> None:
        """Raise FlywheelError if a variable is given for a host that has no endpoint."""
        urls = list(urls)
        unused = set(self._names) - {self._match(url) for url in urls}
        if not unused:
            return
        host, port = min(unused, key=str)
        named = host if port is None else str(Address(host, port))
        asked = sorted({str(Address.of(url)) for url in urls})
        listed = f"Endpoints of this command: {', '.join(asked)}." if asked else ""
        raise FlywheelError(
            f"--key-env names {named}, but no endpoint has this host",
            f"{listed} A host without a port means port 443 of https and 80 of http.".strip(),
        )

    def _match(self, url: str) -> tuple[str, int | None]:
        """Return the entry for a URL: its address, or its host alone at the default port."""
        address = Address.of(url)
        exact = (address.host, address.port)
        at_default = address.port == _PORTS[urlsplit(url).scheme]
        return exact if exact in self._names or not at_default else (address.host, None)


LARGEST_BYTES = 16 << 20
_LARGEST_ERROR_BYTES = 64 << 10
_LONGEST_PAUSE_S = 60.0
"""Longest pause that Retry-After may request."""
_PAUSE_S = 0.5
_MOST_PAUSE_S = 8.0
_TEMPORARY_STATUSES = (408, 409, 429)
_SHORTEST_SECRET = 8
_QUOTED_CHARACTERS = 200

T = TypeVar("T")


class Unreadable(ValueError):
    """Raised by a reader for an answer that is JSON but not what was requested; says why."""


@dataclass(eq=False)
class AnswerFailed(Exception):
    """No try of a request got an answer."""

    why: str
    """What happened; may quote the server."""
    status: int | None = None
    """HTTP status of the last error answer."""
    unreachable: bool = False
    """Whether no server answers at the address."""
    is_retried: bool = False
    """Whether the client tries again."""
    retry_after: str | None = None
    """When to do so, as the server says."""

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status is None or self.status in _TEMPORARY_STATUSES or self.status >= 500


class Client:
    """Sends requests to one server. Use it as an asynchronous context manager.

    Args:
        timeout_s: Deadline of an answer in seconds, including all tries and pauses.
        retries: Number of further tries after a temporary failure.

    Raises FlywheelError if the URL cannot be used, or the timeout is not positive.
    """

    def __init__(self, url: str, key: str | None, *, timeout_s: float, retries: int) -> None:
        import httpx2

        if not timeout_s > 0:
            raise FlywheelError(f"the timeout is {timeout_s:g} s", "Give a number above 0.")
        address = Address.of(url)
        try:
            target = httpx2.URL(f"{url.rstrip('/')}/chat/completions")
        except httpx2.InvalidURL as error:
            raise FlywheelError(f"{url} is no URL: {error}", "Write http(s)://HOST/v1.") from None
        # The standard library parsed the URL to choose the key, and httpx2 parses it to connect.
        if target.host.removesuffix(".") != address.host or address.port != (
            target.port or Address.of(url.partition(":")[0] + "://h").port
        ):
            raise FlywheelError(f"{url} can be read in two ways", "Write its host in ASCII.")
        self._target, self._key = target, key
        self._timeout_s, self._retries = timeout_s, max(retries, 0)

    async def __aenter__(self) -> Self:
        import httpx2

        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",  # the size of what comes is the size of the answer
            "Content-Type": "application/json",
        }
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # The deadline is that of the answer; without limits here, no pool makes requests wait.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx2.AsyncClient(
            headers=headers, follow_redirects=False, timeout=None, limits=limits
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(
        self,
        payload: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        admit: Callable[[], bool] = lambda: True,
    ) -> T:
        """Send a request and return what `read` makes of the answer.

        Args:
            read: Takes the JSON of an answer; raises ValueError if it is malformed.
            admit: Called before every try; False ends the tries.

        Raises AnswerFailed if no try got an answer.
        """
        body = json.dumps(payload).encode()
        failed: AnswerFailed | None = None
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                for attempt in range(self._retries + 1):
                    if not admit():
                        break
                    try:
                        return await self._try_once(body, read)
                    except AnswerFailed as error:
                        if not error.is_retried:
                            raise
                        failed = error
                        # Retry-After in seconds, or a growing random pause.
                        pause_s = min(_PAUSE_S * 2**attempt, _MOST_PAUSE_S)
                        pause_s *= random.uniform(0.75, 1.0)
                        with suppress(ValueError):
                            asked_s = float(error.retry_after or "nan")
                            pause_s = asked_s if asked_s >= 0 else pause_s
                    ends = deadline.when()
                    now = asyncio.get_running_loop().time()
                    if attempt == self._retries or (
                        pause_s > _LONGEST_PAUSE_S or (ends is not None and now + pause_s >= ends)
                    ):
                        break
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            before = f"{failed.why}; " if failed is not None else ""
            raise AnswerFailed(f"{before}no answer in {self._timeout_s:g} s") from None
        raise failed or AnswerFailed("no further request is admitted")

    def hide_key(self, text: str) -> str:
        """Return a text of the server without the key, which the server may quote."""
        if self._key is None or len(self._key) < _SHORTEST_SECRET:
            return text
        return text.replace(self._key, "***")

    async def _try_once(self, body: bytes, read: Callable[[Any], T]) -> T:
        import httpx2

        try:
            async with self._client.stream("POST", self._target, content=body) as answer:
                # The body of an answer; of an error answer only the beginning.
                is_error = answer.status_code >= 300
                largest = _LARGEST_ERROR_BYTES if is_error else LARGEST_BYTES
                encoding = answer.headers.get("Content-Encoding", "identity")
                if encoding != "identity" and not is_error:
                    raise AnswerFailed(
                        f"the answer is compressed ({self._quote(encoding)}), unasked"
                    )
                parts: list[bytes] = []
                size = 0
                async for part in answer.aiter_raw(1 << 16):
                    size += len(part)
                    if size > largest:
                        if is_error:
                            break
                        raise AnswerFailed(f"the answer is larger than {largest >> 20} MiB")
                    parts.append(part)
                data = b"".join(parts)
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            why = f"cannot be reached ({self._quote(str(error))})"
            raise AnswerFailed(why, unreachable=True, is_retried=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            why = f"no HTTP answer: {self._quote(str(error) or type(error).__name__)}"
            raise AnswerFailed(why, is_retried=True) from None
        status = answer.status_code
        if 300 <= status < 400:
            to = self._quote(answer.headers.get("Location", "nowhere"))
            why = f"status {status}: a redirect to {to}, which is not followed"
            raise AnswerFailed(why, status=status)
        if not 200 <= status < 300:
            raise AnswerFailed(
                f"status {status}: {self._error_message(data)}",
                status=status,
                is_retried=status in _TEMPORARY_STATUSES or status >= 500,
                retry_after=answer.headers.get("Retry-After"),
            )
        try:
            return read(json.loads(data))
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, Unreadable) else "malformed answer"
            raise AnswerFailed(why, is_retried=True) from None

    def _error_message(self, data: bytes) -> str:
        """Return the message of an error answer, in OpenAI's form or as plain text."""
        try:
            match json.loads(data):
                case {"error": {"message": str(text)}} | {"message": str(text)}:
                    return self._quote(text)
                case _:
                    pass
        except (ValueError, RecursionError):
            pass
        return self._quote(data.decode("utf-8", "replace"))

    def _quote(self, text: str) -> str:
        return self.hide_key(text)[:_QUOTED_CHARACTERS]
