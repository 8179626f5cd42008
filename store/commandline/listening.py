"""Opens the socket that a server listens on."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Generator
from contextlib import contextmanager

from store.errors import FlywheelError

LOOPBACK = "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """Yield a listening socket; connections wait until a server accepts them.

    Args:
        host: Address of this machine, or a name of it.
        port: Port; 0 takes a free one.

    Raises:
        FlywheelError: the port is taken, or the address is not one of this machine.
    """
    try:
        [family, _, _, _, address], *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise FlywheelError(
            f"{host} is no address of this machine: {error.strerror}", "Name one with --host."
        ) from error
    # With the protocol named, asyncio sends small packets at once, which saves 40 ms an answer.
    with socket.socket(family, proto=socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            listening.listen(1024)
        except OSError as error:
            raise FlywheelError(
                f"port {port} of {host} cannot be used: {error.strerror}",
                "Name another one with --port; --port 0 takes a free one.",
            ) from error
        yield listening
