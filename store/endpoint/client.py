"""One way to ask a server for a chat completion, whatever it sends back.

An answer has one deadline from the first try to the last byte, a size, and no redirects.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from store.endpoint.keys import Address
from store.errors import FlywheelError

if TYPE_CHECKING:
    from types import TracebackType

    import httpx2

LARGEST_BYTES = 16 << 20
"""Most bytes of an answer."""
_LARGEST_ERROR_BYTES = 64 << 10
_LONGEST_PAUSE_S = 60.0
"""Longest pause that a server may ask for by Retry-After."""
_PAUSE_S = 0.5
_MOST_PAUSE_S = 8.0
_JUST_THEN = (408, 409, 429)
_SHORTEST_SECRET = 8
_SAID_CHARACTERS = 200

T = TypeVar("T")


class Unreadable(ValueError):
    """What a reader raises of an answer that is JSON, and not what was asked for; says why."""


class AnswerFailed(Exception):
    """No answer to a request, after all its tries."""

    def __init__(self, why: str, *, status: int | None = None, unreachable: bool = False) -> None:
        super().__init__(why)
        self.why = why
        """What happened; may quote the server."""
        self.status = status
        """Status of the last answer that was an error."""
        self.unreachable = unreachable
        """Whether nobody answers there at all."""

    @property
    def passing(self) -> bool:
        """Whether the same request may be answered a little later."""
        return self.status is None or self.status in _JUST_THEN or self.status >= 500


class Client:
    """Asks one server. Use as an asynchronous context manager.

    Args:
        url: Base URL, such as https://HOST/v1.
        key: Key that is sent to it and to nobody else; None sends none.
        timeout_s: Most seconds for an answer, all tries and pauses included.
        retries: How often a request is repeated that could not be answered just then.

    Raises:
        FlywheelError: the URL cannot be used, or the timeout is no time.
    """

    def __init__(self, url: str, key: str | None, *, timeout_s: float, retries: int) -> None:
        import httpx2

        if not timeout_s > 0:
            raise FlywheelError(f"a timeout of {timeout_s:g} s", "Give a number above 0.")
        address = Address.of(url)
        try:
            target = httpx2.URL(f"{url.rstrip('/')}/chat/completions")
        except httpx2.InvalidURL as error:
            raise FlywheelError(f"{url} is no URL: {error}", "Write http(s)://HOST/v1.") from None
        # The key was chosen by one reading of the URL, and the request goes where another one says.
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.aclose()

    async def ask(
        self,
        payload: Mapping[str, Any],
        read: Callable[[Any], T],
        *,
        admit: Callable[[], bool] = lambda: True,
    ) -> T:
        """Return what `read` makes of the answer to a request.

        Args:
            payload: The request, sent as JSON.
            read: Takes the JSON of an answer; raises ValueError where it is malformed.
            admit: Asked before every try; where it says no, there is no further one.

        Raises:
            AnswerFailed: there is no answer.
        """
        body = json.dumps(payload).encode()
        failed: AnswerFailed | None = None
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                for attempt in range(self._retries + 1):
                    if not admit():
                        break
                    try:
                        return await self._once(body, read)
                    except _NotNow as error:
                        failed = error.failed
                        pause_s = _pause_s(attempt, error.retry_after)
                    if attempt == self._retries or self._is_beyond(deadline, pause_s):
                        break
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            before = f"{failed.why}; " if failed is not None else ""
            raise AnswerFailed(f"{before}no answer in {self._timeout_s:g} s") from None
        raise failed or AnswerFailed("no further request is admitted")

    def hide_key(self, text: str) -> str:
        """Return a text of the server without our key, which it may repeat."""
        if self._key is None or len(self._key) < _SHORTEST_SECRET:
            return text
        return text.replace(self._key, "***")

    @staticmethod
    def _is_beyond(deadline: asyncio.Timeout, pause_s: float) -> bool:
        ends = deadline.when()
        now = asyncio.get_running_loop().time()
        return pause_s > _LONGEST_PAUSE_S or (ends is not None and now + pause_s >= ends)

    async def _once(self, body: bytes, read: Callable[[Any], T]) -> T:
        import httpx2

        try:
            async with self._client.stream("POST", self._target, content=body) as answer:
                data = await self._content(answer)
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            why = f"cannot be reached ({self._said(str(error))})"
            raise _NotNow(AnswerFailed(why, unreachable=True)) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            why = f"no HTTP answer: {self._said(str(error) or type(error).__name__)}"
            raise _NotNow(AnswerFailed(why)) from None
        status = answer.status_code
        if 300 <= status < 400:
            to = self._said(answer.headers.get("Location", "nowhere"))
            why = f"status {status}: a redirect to {to}, which is not followed"
            raise AnswerFailed(why, status=status)
        if not 200 <= status < 300:
            failed = AnswerFailed(f"status {status}: {self._message(data)}", status=status)
            if failed.passing:
                raise _NotNow(failed, answer.headers.get("Retry-After"))
            raise failed
        try:
            return read(json.loads(data))
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, Unreadable) else "malformed answer"
            raise _NotNow(AnswerFailed(why)) from None

    async def _content(self, answer: httpx2.Response) -> bytes:
        """Return the body of an answer; of an error only its beginning."""
        is_error = answer.status_code >= 300
        largest = _LARGEST_ERROR_BYTES if is_error else LARGEST_BYTES
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity" and not is_error:
            raise AnswerFailed(f"the answer is compressed ({self._said(encoding)}), unasked")
        parts: list[bytes] = []
        size = 0
        async for part in answer.aiter_raw(1 << 16):
            size += len(part)
            if size > largest:
                if is_error:
                    break
                raise AnswerFailed(f"the answer is larger than {largest >> 20} MiB")
            parts.append(part)
        return b"".join(parts)

    def _message(self, data: bytes) -> str:
        """Return what an error says, in OpenAI's form or as it is."""
        try:
            match json.loads(data):
                case {"error": {"message": str(text)}} | {"message": str(text)}:
                    return self._said(text)
                case _:
                    pass
        except (ValueError, RecursionError):
            pass
        return self._said(data.decode("utf-8", "replace"))

    def _said(self, text: str) -> str:
        return self.hide_key(text)[:_SAID_CHARACTERS]


class _NotNow(Exception):
    """A try that failed, after which another one may be made."""

    def __init__(self, failed: AnswerFailed, retry_after: str | None = None) -> None:
        super().__init__(failed.why)
        self.failed = failed
        self.retry_after = retry_after


def _pause_s(attempt: int, retry_after: str | None) -> float:
    """Return how long to wait before another try; as long as a server says that names seconds."""
    try:
        asked = float(retry_after or "nan")
    except ValueError:
        asked = math.nan
    if asked >= 0:
        return asked
    return min(_PAUSE_S * 2**attempt, _MOST_PAUSE_S) * random.uniform(0.75, 1.0)
