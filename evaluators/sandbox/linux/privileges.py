"""What a process gives up, and what it asks of the kernel for itself and its children (prctl)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CLEAR_AMBIENT = 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = 64

_C = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own."""
    _C.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def hide_memory() -> None:
    """Hide memory, environment and descriptors of this process and its forks from its own user."""
    _C.prctl(_PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """Let no program that this process starts gain privileges. Raises OSError."""
    if _C.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("new privileges cannot be given up")


def drop_capabilities() -> None:
    """Give up whatever root may do, for this process and what it starts. Raises OSError."""
    for capability in range(_CAPABILITIES):
        _C.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _C.prctl(_PR_CAP_AMBIENT, _CLEAR_AMBIENT, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _C.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
