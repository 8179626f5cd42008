"""What our servers have in common: a listening socket, a token, and their end."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store.errors import FlywheelError

if TYPE_CHECKING:
    from types import FrameType

    import uvicorn
    from starlette.types import ASGIApp

LOOPBACK = "127.0.0.1"
_SHORTEST = 8
"""Characters of a token."""


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

    Raises FlywheelError if the port is taken, or the address is not one of this machine.
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


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server that ends on SIGTERM and Ctrl-C, also while clients are connected."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            # Cutting off a client is no error now.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
            if sig == signal.SIGINT:
                self.should_exit = True  # uvicorn would raise the signal a second time
            else:
                super().handle_exit(sig, frame)

    return Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
    )


class AccessToken:
    """A secret that is compared in constant time.

    >>> AccessToken("correct horse", "FLYWHEEL_MCP_TOKEN").matches("correct horse")
    True
    """

    def __init__(self, secret: str, variable: str) -> None:
        """Raise FlywheelError if the secret is too short."""
        if len(secret) < _SHORTEST:
            raise FlywheelError(
                f"the token in {variable} is too short",
                f"Give at least {_SHORTEST} characters, such as {secrets.token_urlsafe(12)}.",
            )
        self.secret = secret

    @classmethod
    def read(cls, variable: str) -> AccessToken | None:
        """Return the token in an environment variable, or None if the variable is not set."""
        secret = os.environ.get(variable)
        return cls(secret, variable) if secret else None

    def matches(self, given: str) -> bool:
        """Return whether a client gave the secret."""
        return hmac.compare_digest(given.encode(), self.secret.encode())
