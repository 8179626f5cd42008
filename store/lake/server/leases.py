"""Leases among the processes of all hosts that share a lake on a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from store.errors import LakeUnreachable, summarize_error
from store.lake.leases import Leases, hash_name

if TYPE_CHECKING:
    import psycopg


class ServerLeases(Leases):
    """Advisory locks of one session, which the server releases when the session ends."""

    def __init__(self, session: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
        """Take over an open session."""
        self._session = session
        self._schema = schema
        self._held: set[str] = set()

    def take(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that this session holds now. Raises LakeUnreachable."""
        import psycopg

        wanted = {hash_name(f"{self._schema} {name}"): name for name in names}
        asked = [key for key, name in wanted.items() if name not in self._held]
        try:
            rows = self._session.execute(
                "SELECT key FROM unnest(%s::bigint[]) AS asked (key) "
                "WHERE pg_try_advisory_lock(key)",
                [asked],
            ).fetchall()
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"the leases of this run are lost: {summarize_error(error)}",
                "Run this again; what was stored is kept.",
            ) from error
        self._held |= {wanted[key] for (key,) in rows}
        return self._held.intersection(names)

    def find_held(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that any session holds. Raises LakeUnreachable."""
        import psycopg

        keys = {hash_name(f"{self._schema} {name}"): name for name in names}
        try:
            rows = self._session.execute(
                # An advisory lock of a 64-bit key shows as its two halves.
                "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks "
                "WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchall()
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"the leases of this lake cannot be read: {summarize_error(error)}"
            ) from error
        return {keys[key] for (key,) in rows if key in keys}

    def release(self, names: Iterable[str]) -> None:
        """Unlock the names; a session that is lost holds none."""
        import psycopg

        gone = self._held.intersection(names)
        self._held -= gone
        keys = [hash_name(f"{self._schema} {name}") for name in gone]
        with suppress(psycopg.Error):
            self._session.execute(
                "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)", [keys]
            )

    def close(self) -> None:
        """End the session, which releases every name."""
        self._session.close()
