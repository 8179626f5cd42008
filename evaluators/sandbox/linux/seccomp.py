"""Seccomp filters: which system calls a worker and a judge may make.

A worker may make only the calls that torch, CUDA, Triton and compilers make (`restrict_worker`). A
judge may not make calls that starting workers does not need (`restrict_judge`). A refused call
fails with EPERM, so that a library that only tries it continues; a call that is newer than the list
fails with ENOSYS, so that the C library uses an older one. The kernel allows calls by a cached
bitmap unless the filter tests their arguments. Requires no_new_privs.

Each call has a name and the number on x86_64 and on aarch64 (a minus where there is no such call).
Its group has words. `worker`: a worker may make the call. `modes`, `system_v`, `attributes`: a
worker may make it where the machine allows. `not_judge`: a judge may not make it. Workers may not
make any other call. The numbers are from the kernel's headers.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterator
from typing import Literal, TypeAlias

from evaluators.sandbox.linux.this_process import LIBC, check

LAST = 469
"""The newest call in these groups, of Linux 6.17."""

_GROUPS = {
    "worker": """
accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200,
brk 12 214, capget 125 90, chdir 80 49, clock_getres 229 114, clock_gettime 228 113,
clock_nanosleep 230 115, clone 56 220, close 3 57, close_range 436 436, copy_file_range 326 285,
creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -, epoll_create1 291 20,
epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -,
eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94,
faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50,
fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, flistxattr 196 13, flock 73 32, fork 57 -,
fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98, futex_requeue 456 456,
futex_wait 455 455, futex_waitv 449 449, futex_wake 454 454, get_mempolicy 239 236,
get_robust_list 274 100, getcpu 309 168, getcwd 79 17, getdents 78 -, getdents64 217 61,
getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173,
getpriority 140 141, getrandom 318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163,
getrusage 98 165, getsid 124 156, getsockname 51 204, getsockopt 55 209, gettid 186 178,
gettimeofday 96 169, getuid 102 174, getxattr 191 8, ioprio_get 252 31, ioprio_set 251 30,
lgetxattr 192 9, link 86 -, linkat 265 37, listen 50 201, listxattr 194 11, llistxattr 195 12,
lseek 8 62, lstat 6 -, madvise 28 233, map_shadow_stack 453 453, mbind 237 235,
membarrier 324 283, memfd_create 319 279, mincore 27 232, mkdir 83 -, mkdirat 258 34,
mknod 133 -, mknodat 259 33, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222,
mprotect 10 226, mremap 25 216, mseal 462 462, msync 26 227, munlock 150 229,
munlockall 152 231, munmap 11 215, nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56,
openat2 437 437, pause 34 -, personality 135 92, pidfd_open 434 434, pidfd_send_signal 424 424,
pipe 22 -, pipe2 293 59, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288, poll 7 -,
ppoll 271 73, pread64 17 67, preadv 295 69, preadv2 327 286, pselect6 270 72, pwrite64 18 68,
pwritev 296 70, pwritev2 328 287, read 0 63, readahead 187 213, readlink 89 -,
readlinkat 267 78, readv 19 65, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212,
remap_file_pages 216 234, rename 82 -, renameat 264 38, renameat2 316 276,
restart_syscall 219 128, rmdir 84 -, rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136,
rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133,
rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275,
sched_getparam 143 121, sched_getscheduler 145 120, sched_rr_get_interval 148 127,
sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
sched_setscheduler 144 119, sched_yield 24 124, select 23 -, sendfile 40 71, sendmmsg 307 269,
sendmsg 46 211, sendto 44 206, set_mempolicy 238 237, set_mempolicy_home_node 450 450,
set_robust_list 273 99, set_tid_address 218 96, setitimer 38 103, setpgid 109 154,
setpriority 141 140, setrlimit 160 164, setsid 112 157, setsockopt 54 208, shutdown 48 210,
sigaltstack 131 132, signalfd 282 -, signalfd4 289 74, socketpair 53 199, splice 275 76,
stat 4 -, statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, sync_file_range 277 84,
sysinfo 99 179, tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107,
timer_delete 226 111, timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153,
tkill 200 130, truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35,
vfork 58 -, vmsplice 278 75, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
""",
    "worker not_judge": """
connect 42 203, ioctl 16 29, kill 62 129, prctl 157 167, prlimit64 302 261, socket 41 198
""",
    "not_judge": """
acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, chroot 161 51,
clock_adjtime 305 266, clock_settime 227 112, delete_module 176 106, fanotify_init 300 262,
finit_module 313 273, fsconfig 431 431, fsmount 432 432, fsopen 430 430, fspick 433 433,
init_module 175 105, io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425,
ioperm 173 -, iopl 172 -, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104,
keyctl 250 219, migrate_pages 256 238, mount 165 40, mount_setattr 442 442, move_mount 429 429,
move_pages 279 239, open_by_handle_at 304 265, open_tree 428 428, perf_event_open 298 241,
pidfd_getfd 438 438, pivot_root 155 41, process_madvise 440 440, process_vm_writev 311 271,
ptrace 101 117, quotactl 179 60, reboot 169 142, request_key 249 218, setdomainname 171 162,
sethostname 170 161, settimeofday 164 170, swapoff 168 225, swapon 167 224, syslog 103 116,
umount2 166 39, userfaultfd 323 282, vhangup 153 58
""",
    "modes": """
chmod 90 -, chown 92 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55,
fchownat 260 54, futimesat 261 -, lchown 94 -, utime 132 -, utimensat 280 88, utimes 235 -
""",
    "attributes": """
fremovexattr 199 16, fsetxattr 190 7, lremovexattr 198 15, lsetxattr 189 6, removexattr 197 14,
setxattr 188 5
""",
    "system_v": """
semctl 66 191, semget 64 190, semop 65 193, semtimedop 220 192, shmat 30 196, shmctl 31 195,
shmdt 67 197, shmget 29 194
""",
    "other": """
clone3 435 435, seccomp 317 277
""",
}


def map_numbers(machine: str) -> dict[str, int]:
    """Return the numbers of calls on a machine (x86_64 or aarch64) by name.

    >>> x86_64, aarch64 = map_numbers("x86_64"), map_numbers("aarch64")
    >>> x86_64["mount"], aarch64["mount"], "fork" in aarch64
    (165, 40, False)
    """
    column = {"x86_64": 1, "aarch64": 2}[machine]
    calls = (call for calls in map(_split, _GROUPS.values()) for call in calls)
    return {call[0]: int(call[column]) for call in calls if call[column] != "-"}


def list_names(word: str) -> set[str]:
    """Return the names of the calls with a word.

    >>> list_names("attributes") & {"setxattr", "getxattr"}
    {'setxattr'}
    """
    groups = (calls for words, calls in _GROUPS.items() if word in words.split())
    return {call[0] for calls in map(_split, groups) for call in calls}


def _split(calls: str) -> Iterator[list[str]]:
    return (call.split() for call in calls.split(","))


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
    names = list_names("not_judge")
    if sockets:
        names.remove("connect")
    if kills_all:
        names.remove("kill")
    tests = {**_TESTED, "socket": _SOCKET_TESTS if sockets else []}
    known = map_numbers(_find_machine())
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
    known = map_numbers(_find_machine())
    tests = {**_TESTED_OF_WORKERS, "socket": _SOCKET_TESTS if sockets else []}
    names = list_names("worker")
    if modes:
        names |= list_names("modes")
    if sockets:
        names |= list_names("system_v")
    else:
        names -= {"connect", "socket"}
    if not memory_files:
        names.remove("memfd_create")
    lines = _write_head()
    for name in sorted(names & set(tests) & set(known)):
        lines += _write_refusal(known[name], errno.EPERM, tests[name])
    # The error of a file system without extended attributes, which copying programs accept.
    for name in sorted(list_names("attributes")):
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
        (_JUMP_FROM, 1, 0, LAST + 1),
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
