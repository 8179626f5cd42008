"""Sockets that our servers listen on."""

from __future__ import annotations

import ipaddress
import socket

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


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; requests wait until a server reads them.

    Raises FlywheelError if the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends small packets at once, which saves 40 ms an answer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise FlywheelError(
            f"port {port} of {host} cannot be used: {error.strerror}",
            "Name another one with --port; --port 0 takes a free one.",
        ) from error
    return listening
