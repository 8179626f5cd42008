"""A seccomp filter: system calls that no kernel needs and an attack would want are refused.

Refused means EPERM, so that a library that only tries goes on. A refused call costs its caller
nothing else; an allowed one is decided by the kernel's cached bitmap. Requires no_new_privs.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Literal, TypeAlias

Test: TypeAlias = tuple[int, Literal["is", "is not", "has any of"], int]
"""Number of an argument, and what to ask of its lower 32 bits."""

# Numbers on x86_64 and on aarch64; None where there is no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "seccomp": (317, 277),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_NAMESPACES = 0x7E020000  # the flags of clone that make one
_EVERY_PROCESS = 0xFFFFFFFF
_PR_SET_SECCOMP = 22
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX = 1
_TESTED: dict[str, Test] = {
    "kill": (0, "is", _EVERY_PROCESS),
    "prctl": (0, "is", _PR_SET_SECCOMP),  # a filter of its own could answer for the clock
    "prlimit64": (0, "is not", 0),
}
_OF_SANDBOXES = ("clone", "clone3", "seccomp", "setns", "unshare")

_MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
_FOREIGN_FROM = 0x40000000  # x32 calls on x86_64
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_SET_FILTER, _KEEP_SPECULATION = 1, 1 << 2

_C = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse(*, starts_sandboxes: bool, sockets: bool) -> None:
    """Put the filter over this process and its descendants. Raises OSError where it cannot be.

    `starts_sandboxes` leaves the calls that make namespaces and further filters. `sockets` leaves
    sockets of AF_UNIX, which CUDA binds. Network sockets are refused in any case.
    """
    if platform.machine() not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no filter is written for {platform.machine()}")
    column, architecture, number = _MACHINES[platform.machine()]
    code = _program(column, architecture, starts_sandboxes=starts_sandboxes, sockets=sockets)
    program = _Program(len(code) // 8, code)
    if _C.syscall(number, _SET_FILTER, _KEEP_SPECULATION, ctypes.byref(program)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _program(column: int, architecture: int, *, starts_sandboxes: bool, sockets: bool) -> bytes:
    refused = _REFUSE | errno.EPERM
    lines = [
        (_LOAD, 0, 0, 4),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, refused),
        (_LOAD, 0, 0, 0),
    ]
    if column == 0:
        lines += [(_JUMP_FROM, 0, 1, _FOREIGN_FROM), (_RETURN, 0, 0, refused)]
    for name, numbers in _NUMBERS.items():
        number = numbers[column]
        if number is None or (starts_sandboxes and name in _OF_SANDBOXES):
            continue
        if sockets and name == "connect":
            continue
        tests: list[Test | None] = [_TESTED.get(name)]
        if name == "clone":
            tests = [(0, "has any of", _NAMESPACES)]
        elif name == "socket" and sockets:
            tests = [(0, "is not", _AF_UNIX)]
        elif name == "ioctl":
            tests = [(1, "is", _TIOCSTI), (1, "is", _TIOCLINUX)]
        # The flags of clone3 lie in memory; without it the C library takes clone.
        answer = _REFUSE | (errno.ENOSYS if name == "clone3" else errno.EPERM)
        for test in tests:
            lines += _rule(number, answer, test)
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _rule(number: int, answer: int, test: Test | None) -> list[tuple[int, int, int, int]]:
    if test is None:
        return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    argument, relation, value = test
    jump = _JUMP_BITS if relation == "has any of" else _JUMP_EQUAL
    hit, miss = (1, 0) if relation == "is not" else (0, 1)
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, 16 + 8 * argument),
        (jump, hit, miss, value),
        (_RETURN, 0, 0, answer),
        (_LOAD, 0, 0, 0),
    ]
