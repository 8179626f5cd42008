"""Tokens of a judge service: created by a command, stored as hashes, revoked at once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from evaluators.service.queue.database import Database
from store.errors import FlywheelError, UnknownName

Scope: TypeAlias = Literal["read", "judge", "worker", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "judge", "worker", "admin")
_PREFIX = "fw"
_FORM = re.compile(r"fw_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOBODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    client: str
    scopes: frozenset[str]

    def may(self, scope: Scope) -> bool:
        """Whether the caller has a scope; admin has all, and judge includes read."""
        granted = self.scopes | ({"read"} if "judge" in self.scopes else set())
        return scope in granted or "admin" in granted


LOCAL = Caller("local", frozenset({"admin"}))
"""The caller of a server on this machine that has no tokens."""


def create_token(database: Database, client: str, scopes: Sequence[Scope]) -> str:
    """Store the hash of a new token and return the token, which nothing shows again.

    Args:
        database: The queue's file.
        client: Name of its holder: shares and generations carry it.
        scopes: What it may do.

    Raises:
        FlywheelError: the name cannot be used, or a token of this name exists.
    """
    if not _CLIENT.fullmatch(client):
        raise FlywheelError(
            f"{client!a} cannot name a client",
            "Use up to 64 letters, digits, dots, hyphens and underscores.",
        )
    token_id = secrets.token_hex(6)
    token = f"{_PREFIX}_{token_id}_{secrets.token_urlsafe(32)}"
    with database.transaction() as connection:
        if connection.execute("SELECT 1 FROM tokens WHERE client = ?", [client]).fetchone():
            raise FlywheelError(
                f"{client} has a token already", "Revoke it first, or choose another name."
            )
        connection.execute(
            "INSERT INTO tokens (token_id, client, scopes, hash, created_at)"
            " VALUES (?, ?, ?, ?, ?)",
            [token_id, client, " ".join(dict.fromkeys(scopes)), hash_token(token), time.time()],
        )
    return token


def list_tokens(database: Database) -> list[dict[str, Any]]:
    """Return the tokens without their hashes."""
    rows = database.read("SELECT client, scopes, created_at FROM tokens ORDER BY client")
    return [dict(row) for row in rows]


def revoke_token(database: Database, client: str) -> None:
    """Delete the token of a client; requests with it fail from now on. Raises UnknownName."""
    with database.transaction() as connection:
        deleted = connection.execute("DELETE FROM tokens WHERE client = ?", [client]).rowcount
    if not deleted:
        known = [row["client"] for row in list_tokens(database)]
        raise UnknownName.among("token", client, known)


def find_caller(database: Database, token: str) -> Caller | None:
    """Return the holder of a token, or None. Takes the same time for every wrong token of an id."""
    form = _FORM.fullmatch(token)
    rows = database.read(
        "SELECT client, scopes, hash FROM tokens WHERE token_id = ?",
        [form[1] if form else ""],
    )
    stored = rows[0]["hash"] if rows else _NOBODY
    is_right = hmac.compare_digest(stored, hash_token(token))
    if not rows or not is_right:
        return None
    return Caller(rows[0]["client"], frozenset(rows[0]["scopes"].split()))


def hash_token(token: str) -> str:
    """Return the hash that is stored. A token has 256 random bits, so a plain hash suffices."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_scopes(words: Sequence[str]) -> tuple[Scope, ...]:
    """Return scopes by their names. Raises UnknownName."""
    for word in words:
        if word not in SCOPES:
            raise UnknownName.among("scope", word, SCOPES)
    return cast("tuple[Scope, ...]", tuple(words))
