"""The sandbox layers (walls): what each prevents, how to enable it, and what happens without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NAMESPACES = (
    "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor="
    "unconfined …, or sysctl user.max_user_namespaces=10000 and, where they exist, "
    "kernel.unprivileged_userns_clone=1 and kernel.apparmor_restrict_unprivileged_userns=0"
)
_GROUPS = (
    "systemd-run --user --scope -p Delegate=yes COMMAND, or docker run --cgroupns private "
    "--security-opt writable-cgroups=true …, or run as root on the host"
)
_LANDLOCK = "Linux 5.13 or later, with landlock in the list of the boot parameter lsm="


@dataclass(frozen=True)
class Wall:
    """One wall, under its name in `sandbox_level` and `sandbox_missing`."""

    name: str
    stops: str
    remedy: str
    without: str


WALLS = (
    Wall(
        "own_root",
        "seeing files other than the system's and the worker's; changing files other than the "
        "worker's",
        _NAMESPACES,
        "names and dates of files can be queried; see fixed_modes",
    ),
    Wall(
        "fixed_modes",
        "chmod, chown, utime and setxattr on files other than the worker's",
        "own_root, or a kernel with seccomp filters",
        "modes and times of files of the same user can be changed",
    ),
    Wall(
        "landlock",
        "access to other files, to TCP and to the memory of other processes",
        _LANDLOCK,
        "files of the same user can be reached, unless own_root is active",
    ),
    Wall(
        "signal_scope",
        "signals and abstract sockets to processes outside",
        "Linux 6.12 or later (Landlock 6)",
        "processes of the same user can be signaled, unless pid_namespace is active",
    ),
    Wall(
        "pid_namespace",
        "access to processes outside; processes that outlive the worker",
        _NAMESPACES + "; never on a GPU",
        "only cgroup or signal_scope ends all processes of a worker",
    ),
    Wall(
        "own_procfs",
        "reading command lines and statistics of other processes",
        _NAMESPACES,
        "see hidden_processes",
    ),
    Wall(
        "hidden_processes",
        "reading command lines and statistics of other processes",
        "own_root or landlock",
        "command lines of other processes can be read",
    ),
    Wall(
        "seccomp",
        "system calls that kernels and compilers do not need; changes to scheduling and limits of "
        "other processes",
        "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
        "cores and priorities of other processes of the same user can be changed",
    ),
    Wall(
        "no_capabilities",
        "all root privileges",
        "a kernel that lets a process drop capabilities",
        "run as a user without privileges",
    ),
    Wall(
        "no_network",
        "network connections",
        "seccomp, or " + _NAMESPACES,
        "the network can be reached",
    ),
    Wall(
        "ipc_namespace",
        "access to System V memory of other processes",
        _NAMESPACES + "; never on a GPU",
        "seccomp refuses System V memory on a CPU",
    ),
    Wall(
        "private_shm",
        "access to files of other processes in /dev/shm",
        _NAMESPACES,
        "files of the same user in /dev/shm can be reached, unless own_root is active",
    ),
    Wall(
        "cgroup",
        "processes that outlive the worker: one write ends all processes that it forked",
        _GROUPS,
        "only pid_namespace or signal_scope ends all processes of a worker",
    ),
    Wall(
        "freezer",
        "work while no request is pending",
        _GROUPS,
        "workers are stopped by signals; kernels of other authors rank only with --rank-unfrozen",
    ),
    Wall(
        "memory_group",
        "use of more memory than allowed, including files in memory",
        _GROUPS + ", with the memory controller",
        "memory is counted ten times a second, so a process may briefly exceed its limit",
    ),
)
"""Every wall that a machine may refuse, starting with those that protect files."""


def list_missing(limits: Iterable[str]) -> list[str]:
    """Return the walls that are not in force.

    >>> list_missing([wall.name for wall in WALLS if wall.name != "cgroup"])
    ['cgroup']
    """
    held = set(limits)
    return [wall.name for wall in WALLS if wall.name not in held]


def describe_walls(limits: Iterable[str], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row per wall: what, holds, state, and for a missing wall follows and mend."""
    absent = set(list_missing(limits))
    return [
        {
            "what": wall.name,
            "holds": wall.name not in absent,
            "state": f"missing: {reasons.get(wall.name, 'not tried')}"
            if wall.name in absent
            else f"prevents {wall.stops}",
            "follows": wall.without if wall.name in absent else None,
            "mend": wall.remedy if wall.name in absent else None,
        }
        for wall in WALLS
    ]


def format_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the report for a terminal, after a header.

    >>> next(format_lines([]))
    'works   what              state'
    """
    yield "works   what              state"
    for row in rows:
        yield f"{'yes' if row['holds'] else 'NO':6}  {row['what']:17} {row['state']}"
        if not row["holds"]:
            yield f"{'':8}{'':17} follows: {row['follows']}"
            yield f"{'':8}{'':17} fix:     {row['mend']}"


def format_warning(limits: Iterable[str]) -> str | None:
    """Return one line that names the missing walls; None where there is none.

    >>> format_warning(wall.name for wall in WALLS) is None
    True
    """
    absent = list_missing(limits)
    if not absent:
        return None
    return (
        f"not enforced on this machine: {', '.join(absent)}. Every verdict stores this; "
        "`evaluators doctor` explains why and how to fix it."
    )
