"""A hostile server on loopback: answers end in time, and keys go where they are named for."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.endpoint import LARGEST_BYTES, Address, AnswerFailed, Client, Keys, Unreadable
from store.errors import FlywheelError

DEADLINE_S = 60.0
"""Far more than an answer takes that comes."""
SHORT_S = 1.5
"""Deadline of answers that never come."""
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def make_whole(data: bytes, head: bytes = OK, more: bytes = b"") -> bytes:
    """Return an answer with its length."""
    return head + more + b"Content-Length: %d\r\n\r\n" % len(data) + data


def status(code: int, data: bytes = b"", more: bytes = b"") -> bytes:
    return make_whole(data, b"HTTP/1.1 %d No\r\n" % code, more)


def drip(first: bytes, again: bytes) -> Iterator[bytes]:
    """Yield something before every reader would lose its patience, for ever."""
    yield first
    while True:
        yield again
        time.sleep(0.1)


def stream(first: bytes, again: bytes, times: int) -> Iterator[bytes]:
    yield first
    for _ in range(times):
        yield again


MIB = 1 << 20
ANSWERS: dict[str, tuple[Callable[[], bytes | Iterator[bytes]], str]] = {
    "a byte now and then": (
        lambda: drip(OK + b"Content-Length: 100000\r\n\r\n", b" "),
        "no answer in",
    ),
    "a header now and then": (lambda: drip(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"), "no answer in"),
    "a status line now and then": (lambda: drip(b"HTTP/1.1 2", b""), "no answer in"),
    "interim answers": (
        lambda: drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "no answer in",
    ),
    "a chunk now and then": (
        lambda: drip(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        "no answer in",
    ),
    "an error now and then": (
        lambda: drip(b"HTTP/1.1 500 No\r\nContent-Length: 9999\r\n\r\n", b" "),
        "no answer in",
    ),
    "silence": (lambda: drip(b"", b""), "no answer in"),
    "three gigabytes": (
        lambda: stream(OK + b"Content-Length: 3000000000\r\n\r\n", b" " * MIB, 2861),
        "larger than 16 MiB",
    ),
    "chunks without an end": (
        lambda: stream(
            OK + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b" " * MIB + b"\r\n", 3000
        ),
        "larger than 16 MiB",
    ),
    "an error without an end": (
        lambda: stream(
            b"HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"100000\r\n" + b"x" * MIB + b"\r\n",
            3000,
        ),
        "status 400: xxx",
    ),
    "a bomb": (
        lambda: make_whole(compress_spaces(), OK, b"Content-Encoding: gzip\r\n"),
        "compressed",
    ),
    "a header of 200 MB": (
        lambda: stream(b"HTTP/1.1 200 OK\r\nX: ", b"a" * MIB, 200),
        "no HTTP answer",
    ),
    "a million headers": (
        lambda: stream(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 10000, 100),
        "no HTTP answer",
    ),
    "depth": (lambda: make_whole(b'{"choices":' + b"[" * 200_000), "malformed answer"),
    "no JSON": (lambda: make_whole(b"<html>"), "malformed answer"),
    "no UTF-8": (lambda: make_whole(b'{"a": "\xff\xfe"}'), "malformed answer"),
    "a number of a million digits": (lambda: make_whole(b"9" * 1_000_000), "malformed answer"),
    "nothing": (lambda: make_whole(b""), "malformed answer"),
    "no HTTP": (lambda: b"220 mail.example.com ESMTP\r\n\r\n", "no HTTP answer"),
    "an end in the middle": (lambda: OK + b"Content-Length: 100\r\n\r\n{", "no HTTP answer"),
    "two lengths": (
        lambda: OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "no HTTP answer",
    ),
    "a negative length": (lambda: OK + b"Content-Length: -1\r\n\r\n{}", "no HTTP answer"),
    "a wait of eleven days": (
        lambda: status(429, b"{}", b"Retry-After: 1000000\r\n"),
        "status 429",
    ),
    "a wait that is no number": (
        lambda: status(503, b"{}", b"Retry-After: nan\r\n"),
        "status 503",
    ),
    "a wait below zero": (lambda: status(503, b"{}", b"Retry-After: -5\r\n"), "status 503"),
    "a redirect to a file": (
        lambda: status(307, b"", b"Location: file:///etc/passwd\r\n"),
        "status 307: a redirect to file:///etc/passwd, which is not followed",
    ),
    "a redirect to nowhere": (lambda: status(302), "a redirect to nowhere"),
    "an error with a text": (
        lambda: status(404, json.dumps({"error": {"message": "no such model"}}).encode()),
        "status 404: no such model",
    ),
    "an error in odd types": (
        lambda: status(400, json.dumps({"error": {"message": ["x"]}}).encode()),
        "status 400",
    ),
}


@cache
def compress_spaces() -> bytes:
    """Return 64 MiB, compressed."""
    return gzip.compress(b" " * (64 * MIB))


class Server:
    """Gives the same bytes to every request, as fast as they are taken."""

    def __init__(self, made: Callable[[], bytes | Iterator[bytes]]) -> None:
        self._made = made
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.heads: list[bytes] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._ended.set()
        self._socket.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        self._socket.settimeout(0.05)
        while not self._ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(DEADLINE_S)
        with connection:
            try:
                head, _, rest = _read_until_blank(connection).partition(b"\r\n\r\n")
                self.heads.append(head)
                lengths = [
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ]
                while len(rest) < lengths[0]:
                    rest += connection.recv(1 << 16)
                answer = self._made()
                for part in [answer] if isinstance(answer, bytes) else answer:
                    if self._ended.is_set():
                        return
                    connection.sendall(part)
            except OSError:
                return  # the client has gone


def _read_until_blank(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(1 << 16)
        if not part:
            raise OSError("gone")
        data += part
    return data


@contextmanager
def serve(made: Callable[[], bytes | Iterator[bytes]]) -> Iterator[Server]:
    server = Server(made)
    try:
        yield server
    finally:
        server.close()


def ask(
    url: str,
    key: str | None = None,
    *,
    read: Callable[[Any], Any] = lambda body: body,
    timeout_s: float = DEADLINE_S,
    retries: int = 0,
    **more: Any,
) -> Any:
    async def ask_one() -> Any:
        async with Client(url, key, timeout_s=timeout_s, retries=retries) as client:
            return await client.ask({"model": "m"}, read, **more)

    return asyncio.run(asyncio.wait_for(ask_one(), 5 * DEADLINE_S))


@pytest.mark.repeats(run=4)
@pytest.mark.parametrize("name", list(ANSWERS))
def test_every_answer_ends_in_time_and_says_why(name: str) -> None:
    made, why = ANSWERS[name]
    made()  # what takes long to make is made before the clock starts
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serve(made) as server, pytest.raises(AnswerFailed) as caught:
        ask(server.url, retries=1, timeout_s=SHORT_S if why == "no answer in" else DEADLINE_S)
    assert why in caught.value.why
    assert len(caught.value.why) < 400
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 8 * LARGEST_BYTES


def test_a_deadline_holds_over_all_tries() -> None:
    with serve(lambda: status(503, b"", b"Retry-After: 0.4\r\n")) as server:
        with pytest.raises(AnswerFailed, match=r"status 503|no answer in"):
            ask(server.url, retries=1000, timeout_s=SHORT_S)
        assert len(server.heads) <= 5


def test_what_passes_is_asked_again_and_what_does_not_is_not() -> None:
    answers = iter(
        [status(503), status(429, more=b"Retry-After: 0\r\n"), make_whole(b"{}"), status(400)]
    )
    with serve(lambda: next(answers)) as server:
        assert ask(server.url, retries=5) == {}
        assert len(server.heads) == 3
        with pytest.raises(AnswerFailed, match="status 400"):
            ask(server.url, retries=5)
        assert len(server.heads) == 4


def test_a_reader_says_what_is_wrong_and_admission_ends_the_tries() -> None:
    def read(body: Any) -> Any:
        raise Unreadable("no choices")

    with serve(lambda: make_whole(b"{}")) as server:
        with pytest.raises(AnswerFailed, match="no choices"):
            ask(server.url, read=read, retries=1)
        assert len(server.heads) == 2
        admitted = iter([True, False])
        with pytest.raises(AnswerFailed, match="no choices"):
            ask(server.url, read=read, retries=9, admit=lambda: next(admitted))
        assert len(server.heads) == 3


def test_nobody_there_is_unreachable() -> None:
    with socket.socket() as taken:  # nobody else listens there
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(AnswerFailed, match="cannot be reached") as caught:
            ask(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert caught.value.unreachable


def test_a_redirect_takes_no_key_along() -> None:
    with serve(lambda: make_whole(b"{}")) as thief:
        to = f"Location: http://localhost:{thief.port}/steal\r\n".encode()
        with (
            serve(lambda: status(307, b"", to)) as server,
            pytest.raises(AnswerFailed, match="which is not followed"),
        ):
            ask(server.url, "sk-0123456789", retries=3)
        assert thief.heads == []
        assert b"Bearer sk-0123456789" in server.heads[0]


def test_a_key_that_a_server_repeats_is_hidden_even_where_the_text_is_cut() -> None:
    key = "sk-0123456789abcdef"
    for filler in (0, 150, 185, 195, 790):
        said = ("x" * filler + key).encode()
        with (
            serve(lambda said=said: status(400, said)) as server,
            pytest.raises(AnswerFailed) as caught,
        ):
            ask(server.url, key)
        assert "sk-0" not in caught.value.why


# ---- keys ----------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("A", "key-a")
    monkeypatch.setenv("B", "key-b")


@pytest.mark.parametrize(
    ("named", "url", "key"),
    [
        ((), "https://api.openai.com/v1", "general"),
        ((), "https://API.OpenAI.com:443/v1", "general"),
        ((), "http://api.openai.com/v1", None),
        ((), "http://api.openai.com:443/v1", None),
        ((), "https://api.openai.com:8443/v1", None),
        ((), "https://api.openai.com.example.com/v1", None),
        ((), "https://example.com/api.openai.com", None),
        ((), "http://localhost:8000/v1", None),
        (("api.openai.com=A",), "https://api.openai.com/v1", "key-a"),
        (("localhost:8000=OPENAI_API_KEY",), "http://localhost:8000/v1", "general"),
        (("localhost:8000=A", "localhost:9000=B"), "http://localhost:9000/v1", "key-b"),
        (("localhost=A",), "http://localhost:8000/v1", None),
        (("localhost=A",), "http://localhost/v1", "key-a"),
        (("localhost=A",), "https://localhost/v1", "key-a"),
        (("localhost:443=A", "localhost=B"), "https://localhost/v1", "key-a"),
        (("LocalHost:80=A",), "http://localhost./v1", "key-a"),
        (("[::1]:8000=A",), "http://[::1]:8000/v1", "key-a"),
        (("example.com=A",), "https://www.example.com/v1", None),
    ],
)
@pytest.mark.usefixtures("environment")
def test_a_key_is_for_one_host_and_port(named: tuple[str, ...], url: str, key: str | None) -> None:
    assert Keys(named).key_for(url) == key


@pytest.mark.parametrize(
    "given",
    ["A", "=A", "localhost=", "http://localhost=A", "localhost/v1=A", "localhost:x=A",
     "user@localhost=A", "local host=A", "localhost:99999=A", "[::1=A", "a\x1bb=A"],
)  # fmt: skip
def test_what_names_no_host_is_refused(given: str) -> None:
    with pytest.raises(FlywheelError, match="names no host and variable"):
        Keys([given])


@pytest.mark.usefixtures("environment")
def test_a_name_that_no_endpoint_matches_is_refused() -> None:
    urls = ["http://localhost:8000/v1", "https://example.com/v1"]
    Keys(["localhost:8000=A", "example.com=B"]).check_used(urls)
    Keys(["example.com:443=B"]).check_used(urls)
    for named in ("localhost=A", "localhost:9000=A", "example.com:80=A", "example.org=A"):
        with pytest.raises(FlywheelError, match="no endpoint has this host") as caught:
            Keys([named, "example.com=B"] if named != "example.com:80=A" else [named]).check_used(
                urls
            )
        assert "localhost:8000" in str(caught.value)
    with pytest.raises(FlywheelError, match="twice"):
        Keys(["localhost:1=A", "localhost:1=B"])


def test_a_key_that_can_be_none_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in ("sk-one\nsk-two", "sk one", "sk-é", "sk-\x1b"):
        monkeypatch.setenv("A", bad)
        with pytest.raises(FlywheelError, match="A holds characters") as caught:
            Keys(["localhost:1=A"]).key_for("http://localhost:1/v1")
        assert bad not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://h/v1", "http://", "http://u:p@h/v1", "http://h/v1?key=1",
     "http://h:x/v1", "http://[::1/v1", "http://h /v1", "http://h/\x1b", "http://h\n.com/v1"],
)  # fmt: skip
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    with pytest.raises(FlywheelError):
        Address.of(url)


@given(st.text(min_size=1, max_size=30))
def test_a_client_asks_the_host_that_its_key_was_chosen_by(text: str) -> None:
    url = f"http://{text}/v1"
    try:
        address = Address.of(url)
        client = Client(url, None, timeout_s=1, retries=0)
    except FlywheelError:
        return
    target = client._target  # what the library will connect to
    assert (target.host.removesuffix("."), target.port or 80) == (address.host, address.port)
