"""Which files of the system a worker and a judge may read, and which devices they may write to."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from pathlib import Path

PROC = "/proc"
SHM = "/dev/shm"
ROOM = Path(__file__).resolve().parents[1]
"""The folder of this package, which workers import from."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys")
# Only what loaders, compilers and user names need of /etc: the rest may hold secrets.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives", "nvidia"),
    *("passwd", "group", "nsswitch.conf", "localtime", "timezone"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom", "dri")
_MOST_GPUS = 64
_NVIDIA = (
    *("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps"),
    *(f"nvidia{number}" for number in range(_MOST_GPUS)),
)


@functools.cache
def find_readable_paths() -> list[str]:
    """Return folders of the system, Python, its packages and compilers; no home, no project."""
    paths = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    paths += [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    paths += [p for p in sys.path if _holds_packages(Path(p))]
    for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME"):
        paths += os.environ.get(name, "").split(os.pathsep)
    paths += [str(Path(os.environ.get(name, "")).parent) for name in ("CC", "CXX")]
    # The environment's HOME is the sandbox's own; the user's is in the user database.
    homes = [Path(home) for home in (os.environ.get("HOME"), _find_home()) if home]
    barred = {part for home in homes for part in (home, *home.parents)}
    absolute = [path for path in dict.fromkeys(paths) if Path(path).is_absolute()]
    # The home of a system's account may be a folder of the system.
    return [path for path in absolute if path in _SYSTEM or Path(path) not in barred]


def _holds_packages(folder: Path) -> bool:
    """Whether a folder holds installed packages, wherever PYTHONPATH names it."""
    is_readable = folder.is_absolute() and os.access(folder, os.R_OK)
    return is_readable and any(folder.glob("*.dist-info"))


def _find_home() -> str | None:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return None


def list_machine_figures() -> list[str]:
    """Return the entries of /proc that describe the machine, without its processes."""
    names = [name for name in os.listdir(PROC) if not name.isdigit()]
    return [f"{PROC}/{name}" for name in names if name not in ("self", "thread-self")]


def list_writable_devices() -> list[str]:
    """Return writable devices by name, since a restricted process cannot list /dev."""
    return [*(f"/dev/{name}" for name in (*_DEVICES, *_NVIDIA)), SHM]
