"""Landlock: which files, TCP ports and processes a process and its descendants may reach.

Raw system calls (landlock(7)), since the C library wraps none. The kernel refuses everything that
no rule names; later rules can only restrict further. Requires no_new_privs.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import TypeAlias

from evaluators.sandbox.linux.this_process import LIBC, check

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_DEVICE_NODES = 1 << 6 | 1 << 11
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TCP = 0b11
_SCOPES = 0b11  # abstract sockets and signals, of processes outside
_FIRST_WITH_TCP, _FIRST_WITH_SCOPES = 4, 6
# Number of file rights that each version of the interface knows; later ones know all.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_RIGHTS = 16

Place: TypeAlias = "str | int"
"""A file or folder, by its path or by an open descriptor of it."""


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("tcp", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def read_version() -> int:
    """Return the version of the kernel's interface; 0 where there is none."""
    return max(0, LIBC.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def scopes_signals() -> bool:
    """Whether the kernel can restrict signals to processes inside."""
    return read_version() >= _FIRST_WITH_SCOPES


def restrict(read: Iterable[Place], write: Iterable[Place]) -> None:
    """Restrict this process to the named places, no TCP, and signals to processes below it.

    `read` includes execution; `write` includes everything but making device nodes. Paths that do
    not exist are skipped. Raises OSError where the kernel refuses.
    """
    known = read_version()
    handled = (1 << _RIGHTS.get(known, _ALL_RIGHTS)) - 1
    ruleset = _create_ruleset(known, handled, _TCP)
    try:
        for places, rights in ((read, _READ), (write, handled & ~_DEVICE_NODES)):
            for place in places:
                _allow(ruleset, place, rights & handled)
        check(LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def restrict_signals() -> None:
    """Restrict signals and abstract sockets to processes inside, nothing else. Raises OSError."""
    # Every ruleset refuses renames between folders unless it allows them.
    ruleset = _create_ruleset(read_version(), _REFER, 0)
    try:
        _allow(ruleset, "/", _REFER)
        check(LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _create_ruleset(known: int, files: int, tcp: int) -> int:
    asked = _Ruleset(files, tcp, _SCOPES)
    size = 24 if known >= _FIRST_WITH_SCOPES else 16 if known >= _FIRST_WITH_TCP else 8
    return check(LIBC.syscall(_CREATE_RULESET, ctypes.byref(asked), size, 0))


def _allow(ruleset: int, place: Place, rights: int) -> None:
    try:
        parent = (
            os.dup(place) if isinstance(place, int) else os.open(place, os.O_PATH | os.O_CLOEXEC)
        )
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            rights &= _OF_FILES
        rule = _Beneath(rights, parent)
        check(LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(parent)
