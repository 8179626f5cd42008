"""Errors of a commit that its rows do not cause, and what to do about each."""

from __future__ import annotations

import errno
import sqlite3
from typing import TYPE_CHECKING, NoReturn

from store.errors import CommitConflict, FlywheelError, LakeUnreachable, summarize_error

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
_EXPIRED = ("expiredtoken", "token has expired", "tokenrefreshrequired", "security token")
_SKEWED = ("requesttimetooskewed", "requestexpired")
_FORBIDDEN = (
    "403",
    "accessdenied",
    "access_denied",
    "access denied",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an error is DuckDB's form of a KeyboardInterrupt."""
    return isinstance(error.__cause__, KeyboardInterrupt) or str(error).startswith(
        "KeyboardInterrupt"
    )


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
    if code in (errno.ENOSPC, errno.EDQUOT) or any(words in text for words in _FULL):
        return LakeUnreachable(
            f"the disk of {location.url} is full: {summarize_error(error)}",
            f"Free space there and run this again. {_KEPT}",
        )
    place = location.files.url
    if any(words in text for words in _EXPIRED):
        return LakeUnreachable(
            f"the credentials for {place} have expired",
            f"Renew them, as with `aws sso login` or a new AWS_SESSION_TOKEN. {_KEPT}",
        )
    if any(words in text for words in _SKEWED):
        return LakeUnreachable(
            f"{place} refuses this host, because its clock is off",
            f"Set the clock, as with an NTP service, and run this again. {_KEPT}",
        )
    if any(words in text for words in _FORBIDDEN):
        return LakeUnreachable(
            f"these credentials may not write to {place}: {summarize_error(error)}",
            "Ask the owner of the bucket for the right to write, or test the credentials with "
            f"`aws s3 ls`. {_KEPT}",
        )
    return LakeUnreachable(
        f"the data files in {place} cannot be written or read: {summarize_error(error)}",
        f"Test that place and the network, and run this again. {_KEPT}",
    )
