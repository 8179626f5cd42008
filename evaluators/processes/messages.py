"""Messages between the judge and its workers: one JSON object per packet.

Packets keep their boundaries (SOCK_SEQPACKET), so that no bytes of a candidate can pass for a part
of an honest message. Nothing that is received is ever unpickled or evaluated.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PACKET_LIMIT_BYTES = 128 * 1024
_TURN = b"."
"""The report of a call that is timed alone, and the judge's answer that lets the next one begin."""


class Closed(Exception):
    """The other end is closed."""


class Malformed(Exception):
    """A packet is not a message of this protocol."""


class TooLong(Exception):
    """A reply cannot be sent."""


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends of a packet channel."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message and file descriptors. Raises Closed, and ValueError when it is too long."""
    packet = json.dumps(message).encode()
    if len(packet) > PACKET_LIMIT_BYTES:
        raise ValueError(f"a message of {len(packet)} bytes exceeds {PACKET_LIMIT_BYTES}")
    try:
        if fds:
            socket.send_fds(end, [packet], list(fds))
        else:
            end.send(packet)
    except OSError as error:
        raise Closed from error


def receive(end: socket.socket) -> dict[str, Any]:
    """Return the next message without file descriptors. Raises Closed, Malformed."""
    try:
        packet, _, flags, _ = end.recvmsg(PACKET_LIMIT_BYTES)
    except OSError as error:
        raise Closed from error
    return _parse(packet, flags)


def receive_with_fds(end: socket.socket, most: int) -> tuple[dict[str, Any], list[int]]:
    """Return a trusted sender's next message and file descriptors. Raises Closed, Malformed."""
    try:
        packet, fds, flags, _ = socket.recv_fds(end, PACKET_LIMIT_BYTES, most)
    except OSError as error:
        raise Closed from error
    for fd in fds:
        os.set_inheritable(fd, False)
    return _parse(packet, flags), fds


def serve(
    end: socket.socket,
    perform: Callable[[str, dict[str, Any]], dict[str, Any]],
    describe_failure: Callable[[Exception], dict[str, Any]],
) -> None:
    """Answer the requests of a judge until it closes the channel.

    Args:
        perform: Returns the reply to an operation with its fields.
        describe_failure: Returns the reply where `perform` raises, or to TooLong.
    """
    while True:
        try:
            request = receive(end)
        except Closed:
            return
        number, operation = request.pop("number"), request.pop("do")
        try:
            reply = perform(operation, request)
        except Exception as error:
            reply = describe_failure(error)
        try:
            send(end, {"number": number, **reply})
        except ValueError as error:
            send(end, {"number": number, **describe_failure(TooLong(str(error)))})


def await_turn(end: socket.socket | None) -> None:
    """Report a call that is timed alone, and wait until the next one may begin."""
    assert end is not None
    end.send(_TURN)
    end.recv(len(_TURN))


def pass_turn(end: socket.socket) -> bool:
    """Let the next call begin. Returns False where no report of a call has come."""
    with contextlib.suppress(OSError):
        if end.recv(len(_TURN) + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == _TURN:
            return end.send(end.recv(len(_TURN))) > 0
    return False


def _parse(packet: bytes, flags: int) -> dict[str, Any]:
    if not packet:
        raise Closed
    if flags & socket.MSG_TRUNC:
        raise Malformed(f"a packet exceeds {PACKET_LIMIT_BYTES} bytes")
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {packet[:40]!r}") from error
    if not isinstance(message, dict):
        raise Malformed(f"not an object: {packet[:40]!r}")
    return message


def make_readable(text: str) -> str:
    """Return a text that can be stored and printed: valid UTF-8 without NUL.

    >>> make_readable("a\\x00b\\ud800")
    'ab\\\\ud800'
    """
    return text.replace("\x00", "").encode("utf-8", "backslashreplace").decode("utf-8")


def name_axes(axes: Mapping[str, Any]) -> str:
    """Return the name of a shape, which says the sizes that differ.

    >>> name_axes({"ROWS": 1, "SHAPE": [3, 4]})
    'ROWS=1, SHAPE=[3, 4]'
    """
    return ", ".join(f"{name}={value}" for name, value in axes.items())
