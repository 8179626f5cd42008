"""The walls around workers: what each one stops, how to enable it, and what happens without it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NAMESPACES = (
    "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor="
    "unconfined …, or sysctl user.max_user_namespaces=10000 and, where they are there, "
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
        "seeing or changing any file but the system's and its own; chmod, chown, utime, setxattr",
        _NAMESPACES,
        "names and dates of files can be asked for; see fixed_modes",
    ),
    Wall(
        "fixed_modes",
        "chmod, chown, utime and setxattr of files that are not its own",
        "own_root, or a kernel with seccomp filters",
        "modes and times of files of the same user can be changed",
    ),
    Wall(
        "landlock",
        "files besides the system's and its own; TCP; memory of other processes",
        _LANDLOCK,
        "files of the same user can be reached, unless own_root holds",
    ),
    Wall(
        "signal_scope",
        "signals and abstract sockets to processes outside",
        "Linux 6.12 or later (Landlock 6)",
        "processes of the same user can be signalled, unless pid_namespace holds",
    ),
    Wall(
        "pid_namespace",
        "reaching processes outside; survivors",
        _NAMESPACES + "; never on a GPU",
        "the end of a worker rests on cgroup or signal_scope",
    ),
    Wall(
        "own_procfs",
        "command lines and figures of other processes",
        _NAMESPACES,
        "see hidden_processes",
    ),
    Wall(
        "hidden_processes",
        "command lines and figures of other processes",
        "own_root or landlock",
        "command lines of other processes can be read",
    ),
    Wall(
        "seccomp",
        "system calls that kernels and compilers do not make; schedulers and limits of others",
        "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
        "cores and priorities of other processes of the same user can be taken",
    ),
    Wall(
        "no_capabilities",
        "whatever root may do",
        "a kernel that lets a process drop capabilities",
        "run as a user without privileges",
    ),
    Wall(
        "no_network",
        "every socket but those of this machine's kernel",
        "seccomp, or " + _NAMESPACES,
        "the network can be reached",
    ),
    Wall(
        "ipc_namespace",
        "System V memory of others",
        _NAMESPACES + "; never on a GPU",
        "seccomp refuses System V memory on a processor",
    ),
    Wall(
        "private_shm",
        "files of others in /dev/shm",
        _NAMESPACES,
        "files of the same user in /dev/shm can be reached, unless own_root holds",
    ),
    Wall(
        "cgroup",
        "survivors: one write ends all that a worker has forked",
        _GROUPS,
        "the end of a worker rests on pid_namespace or signal_scope",
    ),
    Wall(
        "freezer",
        "work while no request is pending",
        _GROUPS,
        "workers are stopped by signals; kernels of other authors rank only with --rank-unfrozen",
    ),
    Wall(
        "memory_group",
        "more memory than allowed, files in memory included",
        _GROUPS + ", with the memory controller",
        "memory is counted ten times a second, so that a fast one may take more for a moment",
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
    """Return a row per wall: wall, holds, stops, and for a missing wall why, allow, follows."""
    absent = set(list_missing(limits))
    return [
        {
            "wall": wall.name,
            "holds": wall.name not in absent,
            "stops": wall.stops,
            "why": reasons.get(wall.name, "not tried") if wall.name in absent else None,
            "allow": wall.remedy if wall.name in absent else None,
            "follows": wall.without if wall.name in absent else None,
        }
        for wall in WALLS
    ]


def format_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the report for a terminal."""
    for row in rows:
        yield f"{'yes' if row['holds'] else 'NO ':3}  {row['wall']:17} {row['stops']}"
        if not row["holds"]:
            yield f"{'':5}{'':17} because: {row['why']}"
            yield f"{'':5}{'':17} without: {row['follows']}"
            yield f"{'':5}{'':17} allow:   {row['allow']}"


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
