"""The user of this process, who may have no account and no home, as in many containers."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

from store.errors import FlywheelError
from store.lake.host.scratch import find_user_scratch


def name_user() -> str:
    """Return the user's login name, or a name with the user id where no account has it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def find_home() -> Path | None:
    """Return the user's home; None where neither HOME nor an account names one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def choose_cache(name: str) -> Path:
    """Return the folder of this user's files of one kind that may be deleted at any time.

    It is in FLYWHEEL_CACHE, else in XDG_CACHE_HOME or the home's folder for caches. A user who can
    write to neither has it in the folder for temporary files.
    """
    given = os.environ.get("FLYWHEEL_CACHE")
    if given:
        return Path(given).absolute() / name
    base, home = os.environ.get("XDG_CACHE_HOME"), find_home()
    if base:
        return Path(base) / "flywheel" / name
    if home is not None:
        cache = home / ".cache" / "flywheel" / name
        if os.access(next(part for part in cache.parents if part.exists()), os.W_OK):
            return cache
    return find_user_scratch(Path(tempfile.gettempdir())) / "cache" / name


def choose_state() -> Path:
    """Return the folder of this user's lasting files on this host. Raises FlywheelError."""
    base, home = os.environ.get("XDG_STATE_HOME"), find_home()
    if base:
        return Path(base)
    if home is None:
        raise FlywheelError(
            f"user id {os.getuid()} has no account and HOME is not set, so that no folder keeps"
            " rows until they are committed",
            "Set XDG_STATE_HOME or HOME to a folder that you can write to.",
        )
    return home / ".local" / "state"
