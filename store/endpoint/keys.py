"""Chooses the key for a server: a key goes only to the host that it was given for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

        Raises:
            FlywheelError: it is not an http or https URL, or it contains what may be a secret.
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

        Raises:
            FlywheelError: one has another form, or two are for the same host and port.
        """
        self._names: dict[tuple[str, int | None], str] = {}
        for given in named:
            where, _, name = given.rpartition("=")
            try:
                parts = urlsplit(f"//{where}")
                host, port = parts.hostname, parts.port
            except ValueError:
                host = port = None
            if not host or not name or _has_more(where):
                raise FlywheelError(f'"{given}" names no host and variable', _USAGE)
            key = (host.removesuffix("."), port)
            if key in self._names:
                raise FlywheelError(f"--key-env names {where} twice", "Give each host once.")
            self._names[key] = name

    def key_for(self, url: str) -> str | None:
        """Return the key for a server from the environment, or None if no variable is given for it.

        A host without a port means the default port of the URL's scheme. OPENAI_API_KEY goes to
        https://api.openai.com, and to another host only if --key-env says so.

        Raises:
            FlywheelError: the variable is not set, or its value cannot be a key.
        """
        name = self._names.get(self._match(url), None)
        if name is None:
            if Address.of(url) != _OPENAI or not url.startswith("https:"):
                return None
            key, name = os.environ.get(KEY), KEY
            if not key:
                return None
        else:
            key = os.environ.get(name)
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


def _has_more(where: str) -> bool:
    """Return whether a text has more than HOST or HOST:PORT, such as a scheme or a path."""
    return not where.isprintable() or any(char in where for char in "/?#@\\ ")
