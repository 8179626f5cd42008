"""Seccomp filters: which system calls a worker and a judge may make.

A worker may make only the calls that torch, CUDA, Triton and compilers make (`restrict_worker`). A
judge may not make calls that starting workers does not need (`restrict_judge`). A refused call
fails with EPERM, so that a library that only tries it continues; a call that is newer than the list
fails with ENOSYS, so that the C library uses an older one. The kernel allows calls by a cached
bitmap unless the filter tests their arguments. Requires no_new_privs.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from typing import Literal, TypeAlias

from evaluators.sandbox.linux import syscalls
from evaluators.sandbox.linux.this_process import LIBC, check

Test: TypeAlias = tuple[int, Literal["is", "is not", "has any of"], int]
"""Number of an argument, and a condition on its lower 32 bits."""
_Line: TypeAlias = tuple[int, int, int, int]

_NAMESPACES = 0x7E020000  # the flags of clone that make one
_EVERY_PROCESS = 0xFFFFFFFF
_PR_SET_SECCOMP = 22
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_ASK_PERSONALITY = 0xFFFFFFFF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SET_FLAGS, _SET_EXTENDED_FLAGS = 0x40086602, 0x401C5820
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 4
_AF_UNIX = 1
_TESTED: dict[str, list[Test]] = {
    "clone": [(0, "has any of", _NAMESPACES)],
    "ioctl": [(1, "is", _TIOCSTI), (1, "is", _TIOCLINUX)],
    "kill": [(0, "is", _EVERY_PROCESS)],
    "prctl": [(0, "is", _PR_SET_SECCOMP)],  # a filter of its own could fake the clock
    "prlimit64": [(0, "is not", 0)],
}
"""Calls that are refused where one of these conditions holds."""
_TESTED_OF_WORKERS: dict[str, list[Test]] = {
    **_TESTED,
    "fcntl": [(1, "is", _F_NOTIFY), (1, "is", _F_SETLEASE)],
    "ioctl": [
        *_TESTED["ioctl"],
        (1, "is", _SET_FLAGS),
        (1, "is", _SET_EXTENDED_FLAGS),
    ],
    "ioprio_set": [(0, "is not", _IOPRIO_WHO_PROCESS), (1, "is not", 0)],
    # Huge pages, which no control group counts.
    "memfd_create": [(1, "has any of", _MFD_HUGETLB)],
    "mmap": [(3, "has any of", _MAP_HUGETLB)],
    "personality": [(0, "is not", _ASK_PERSONALITY)],
    # The number 0 is the calling thread; any other may belong to another process.
    "sched_setaffinity": [(0, "is not", 0)],
    "sched_setattr": [(0, "is not", 0)],
    "sched_setparam": [(0, "is not", 0)],
    "sched_setscheduler": [(0, "is not", 0)],
    "setpriority": [(0, "is not", _PRIO_PROCESS), (1, "is not", 0)],
}

_SOCKET_TESTS: list[Test] = [(0, "is not", _AF_UNIX)]
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FOREIGN_FROM = 0x40000000  # x32 calls on x86_64
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_SET_FILTER, _KEEP_SPECULATION = 1, 1 << 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict_judge(*, sockets: bool, kills_all: bool) -> None:
    """Install the filter of a judge for this process and its descendants. Raises OSError.

    It allows calls that make namespaces and further filters.

    Args:
        sockets: Allow AF_UNIX sockets, which CUDA binds. Network sockets are always refused.
        kills_all: Allow the signal to every process, where signals reach only descendants.
    """
    names = syscalls.list_names("not_judge")
    if sockets:
        names.remove("connect")
    if kills_all:
        names.remove("kill")
    tests = {**_TESTED, "socket": _SOCKET_TESTS if sockets else []}
    known = syscalls.map_numbers(_find_machine())
    lines = _write_head()
    for name in sorted(names):
        if name in known:
            lines += _write_refusal(known[name], errno.EPERM, tests.get(name, []))
    lines.append((_RETURN, 0, 0, _ALLOW))
    _install(lines, known["seccomp"])


def restrict_worker(*, sockets: bool, modes: bool, memory_files: bool) -> None:
    """Install the filter of a worker for this process and its descendants. Raises OSError.

    Args:
        sockets: Allow AF_UNIX sockets and System V memory, for CUDA.
        modes: Allow changes of modes, owners and times, where mounts protect other files.
        memory_files: Allow nameless files in memory, where a control group counts them.
    """
    known = syscalls.map_numbers(_find_machine())
    tests = {**_TESTED_OF_WORKERS, "socket": _SOCKET_TESTS if sockets else []}
    names = syscalls.list_names("worker")
    if modes:
        names |= syscalls.list_names("modes")
    if sockets:
        names |= syscalls.list_names("system_v")
    else:
        names -= {"connect", "socket"}
    if not memory_files:
        names.remove("memfd_create")
    lines = _write_head()
    for name in sorted(names & set(tests) & set(known)):
        lines += _write_refusal(known[name], errno.EPERM, tests[name])
    # The error of a file system without extended attributes, which copying programs accept.
    for name in sorted(syscalls.list_names("attributes")):
        lines += _write_refusal(known[name], errno.EOPNOTSUPP, [])
    # A filter cannot test clone3's flags, which are in memory; the C library falls back to clone.
    lines += _write_refusal(known["clone3"], errno.ENOSYS, [])
    ranges: list[tuple[int, int]] = []  # of consecutive numbers, which need fewer comparisons
    for number in sorted({known[name] for name in names if name in known}):
        first = ranges.pop()[0] if ranges and ranges[-1][1] == number - 1 else number
        ranges.append((first, number))
    for first, last in ranges:
        lines += [
            (_JUMP_FROM, 3, 0, last + 1),
            (_JUMP_FROM, 0, 1, first),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        ]
    lines += [
        (_JUMP_FROM, 1, 0, syscalls.LAST + 1),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    ]
    _install(lines, known["seccomp"])


def _find_machine() -> str:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter is written for {machine}")
    return machine


def _write_head() -> list[_Line]:
    """Return instructions that refuse other architectures and load the number of the call."""
    machine = _find_machine()
    refused = _REFUSE | errno.EPERM
    lines: list[_Line] = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, _MACHINES[machine]),
        (_RETURN, 0, 0, refused),
        (_LOAD, 0, 0, 0),
    ]
    if machine == "x86_64":
        lines += [(_JUMP_FROM, 0, 1, _FOREIGN_FROM), (_RETURN, 0, 0, refused)]
    return lines


def _write_refusal(number: int, error: int, tests: list[Test]) -> list[_Line]:
    """Return instructions that refuse a call where a test holds, or always without tests."""
    answer = _REFUSE | error
    if not tests:
        return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    lines: list[_Line] = []
    for argument, relation, value in tests:
        jump = _JUMP_BITS if relation == "has any of" else _JUMP_EQUAL
        hit, miss = (1, 0) if relation == "is not" else (0, 1)
        lines += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, 16 + 8 * argument),
            (jump, hit, miss, value),
            (_RETURN, 0, 0, answer),
            (_LOAD, 0, 0, 0),
        ]
    return lines


def _install(lines: list[_Line], number: int) -> None:
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    program = _Program(len(lines), code)
    check(LIBC.syscall(number, _SET_FILTER, _KEEP_SPECULATION, ctypes.byref(program)))
