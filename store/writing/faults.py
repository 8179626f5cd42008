"""Errors of a commit that its rows do not cause, and what to do about each."""

from __future__ import annotations

import errno
import sqlite3
from typing import TYPE_CHECKING, NoReturn

from store.errors import CommitConflict, FlywheelError, LakeUnreachable, summarize_error
from store.lake.data_files.refusals import describe_refusal

if TYPE_CHECKING:
    from store.lake.location import Location

_KEPT = "Nothing is lost: what was spooled is kept, and the next append or `store init` commits it."
_SQLITE = ("disk is full", "disk I/O error", "attempt to write a readonly database")
_POSTGRES = (
    "server closed the connection",
    "terminating connection",
    "no connection to the server",
    "connection to server",
    "connection has been closed",
    "could not receive data from server",
    "could not send data to server",
    "another process has taken the lock",
)
_FULL = ("no space left", "disk is full", "disk quota", "could not extend file")


def raise_foreign(error: BaseException, location: Location) -> None:
    """Raise KeyboardInterrupt or CommitConflict for DuckDB's forms of them; else do nothing."""
    if isinstance(error.__cause__, KeyboardInterrupt) or str(error).startswith("KeyboardInterrupt"):
        raise KeyboardInterrupt from None
    # A holder that has lost the lock can have committed last, after this transaction had begun.
    if "Transaction conflict" in str(error):
        raise CommitConflict(
            f"another program has committed to {location.catalog_name} meanwhile",
            "Run this again; what was spooled is kept.",
        ) from error
    # SQLite does not wait when a transaction that has read begins to write.
    if str(error).endswith("database is locked"):
        raise CommitConflict(
            f"another program holds {location.catalog_name}",
            "Let go of it there, and run this again; what was spooled is kept.",
        ) from error


def is_elsewhere(error: Exception) -> bool:
    """Return whether disk, memory, network or another program caused an error, not the rows."""
    import duckdb

    kinds = (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.InterruptException)
    if isinstance(error, (*kinds, OSError, MemoryError, sqlite3.Error, CommitConflict)):
        return True
    # DuckLake passes on the messages of SQLite and PostgreSQL as text.
    return str(error).endswith(_SQLITE) or is_disconnected(error)


def is_disconnected(error: Exception) -> bool:
    """Return whether the connection to a PostgreSQL server is lost, or may not commit any more."""
    return any(words in str(error) for words in _POSTGRES)


def raise_explained(error: Exception, location: Location) -> NoReturn:
    """Raise an error that says what to do about one that `is_elsewhere`."""
    import duckdb

    if isinstance(error, (FlywheelError, duckdb.InterruptException)):
        raise error
    raise explain(error, location) from error


def explain(error: Exception, location: Location) -> FlywheelError:
    """Return what happened and what to do."""
    text = str(error).lower()
    code = error.errno if isinstance(error, OSError) else None
    is_index = isinstance(error, sqlite3.Error)  # the key index, which is a file of this host
    if code in (errno.ENOSPC, errno.EDQUOT) or any(words in text for words in _FULL):
        full = location.root if is_index else location.url
        return LakeUnreachable(
            f"the disk of {full} is full: {summarize_error(error)}",
            f"Free space there and run this again. {_KEPT}",
        )
    place = str(location.root) if is_index else location.files.url
    refusal = describe_refusal(error, place)
    if refusal is not None:
        return LakeUnreachable(refusal.message, f"{refusal.hint} {_KEPT}")
    return LakeUnreachable(
        f"{place} cannot be written or read: {summarize_error(error)}",
        f"Test that place and the network, and run this again. {_KEPT}",
    )
