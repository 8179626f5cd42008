"""Walls around processes that run untrusted code, each put up where this machine allows it.

Verdicts are right without any of them: they depend only on what the worker receives and returns.
`find_available_walls` finds which walls a machine allows, by putting up each in a forked child, and
every row stores them. There are three kinds: namespaces, which a whole tree of processes shares
(`enclose`), a root of each worker's own (`linux.mounts`), and restrictions of one process for its
lifetime (`guard`, `narrow`).

CUDA shares memory only between processes of the same user, PID and IPC namespaces, and over
sockets of the same network namespace. On a machine with a GPU, workers therefore share these with
the judge process.
"""

import contextlib
import errno
import functools
import os
import pwd
import site
import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from evaluators.sandbox.linux import landlock, seccomp, this_process
from evaluators.sandbox.linux.mounts import MountServer, Root, request_root

MARKER = "FLYWHEEL_FORK_SERVER"
"""Environment variable that identifies a fork server and its workers by a unique value."""
MARK_BYTES = 16
"""Bytes of such a value, which is written in hexadecimal digits."""
WITHOUT = "FLYWHEEL_WITHOUT"
"""Environment variable that names, with commas, the walls that a fork server leaves out."""

inherited: list[str] = []
"""Namespaces that `enclose` has made for this process, and so for every process below it."""
missing: dict[str, str] = {}
"""Walls that this process could not put up, each with the reason."""
mounts: socket.socket | None = None
"""Socket on which this process and every fork server below it request roots (`linux.mounts`)."""
helpers: list[int] = []
"""Processes below this one that serve it for its lifetime."""

PROC = "/proc"
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
_END_LIMIT_S = 2.0
_LOOK_S = 0.002
_LONGEST_REASON = 500
SHARED_BY_CUDA = "CUDA shares memory between processes of one PID and IPC namespace only"


@functools.cache
def find_readable_paths() -> list[str]:
    """Return folders of the system, Python, its packages and compilers; no home, no project."""
    paths = [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    paths += [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    for folder in map(Path, sys.path):  # installed packages, wherever PYTHONPATH names them
        is_readable = folder.is_absolute() and os.access(folder, os.R_OK)
        if is_readable and any(folder.glob("*.dist-info")):
            paths.append(str(folder))
    for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME"):
        paths += os.environ.get(name, "").split(os.pathsep)
    paths += [str(Path(os.environ.get(name, "")).parent) for name in ("CC", "CXX")]
    # The environment's HOME is the sandbox's own; the user's is in the user database.
    homes = [Path(os.environ["HOME"])] if os.environ.get("HOME") else []
    with contextlib.suppress(KeyError):
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    barred = {part for home in homes for part in (home, *home.parents)}
    absolute = [path for path in dict.fromkeys(paths) if Path(path).is_absolute()]
    # The home of a system's account may be a folder of the system.
    return [path for path in absolute if path in _SYSTEM or Path(path) not in barred]


def _list_writable_devices() -> list[str]:
    """Return writable devices by name, since a restricted process cannot list /dev."""
    return [*(f"/dev/{name}" for name in (*_DEVICES, *_NVIDIA)), "/dev/shm"]


def has_gpu() -> bool:
    """Whether a process started from here would see an NVIDIA GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and Path("/dev/nvidiactl").exists()


def enclose(*, gpu: bool) -> list[str]:
    """Put this process into namespaces of its own and return their names, as in `inherited`.

    Call it while the process has one thread. With `gpu`, namespaces across which CUDA cannot share
    memory are left out.
    """
    parts: dict[str, Callable[[], None]] = {
        "user_namespace": this_process.enter_user_namespace,
        "no_network": lambda: this_process.unshare(this_process.NEWNET),
        "ipc_namespace": lambda: this_process.unshare(this_process.NEWIPC),
        "private_shm": this_process.mount_private_shm,
    }
    if gpu:
        del parts["ipc_namespace"]
        missing["ipc_namespace"] = SHARED_BY_CUDA
        if os.geteuid() == 0:  # root needs none to make the others, and devices may want it
            del parts["user_namespace"]
    for name, part in parts.items():
        why = find_failure(part)
        if why is None:
            part()
            inherited.append(name)
        else:
            missing[name] = why
    return inherited


def serve_mounts(below: Sequence[str] | None, *, gpu: bool) -> int | None:
    """Start the process that mounts roots of workers whose folders are below these.

    Call it after `enclose` and before anything that forbids mounting. Returns a descriptor of the
    top of every root, or None where the machine allows no roots.
    """
    global mounts
    try:
        server = MountServer([*find_readable_paths(), str(ROOM)], below, gpu=gpu)
    except OSError as error:
        missing["own_root"] = str(error)
        return None
    mounts = server.requests
    helpers.append(server.pid)
    return server.root


def end_helpers() -> None:
    """End the processes that serve this one, once no process below it needs them."""
    global mounts
    if mounts is None or not helpers:
        return
    mounts.close()  # they end with their last client; a signal may not reach them from here
    mounts = None
    until = time.monotonic() + _END_LIMIT_S
    while helpers and time.monotonic() < until:
        if os.waitpid(helpers[-1], os.WNOHANG)[0]:
            helpers.pop()
        else:
            time.sleep(_LOOK_S)


def begin_template(enclosures: str, requests: str) -> None:
    """Put up the walls that fork servers share with their workers, before torch is imported.

    Args:
        enclosures: Namespaces that the judge has made, with commas.
        requests: Number of the descriptor on which to request roots, or an empty text.
    """
    global mounts
    this_process.die_with_parent()
    gpu = has_gpu()
    inherited.extend(filter(None, enclosures.split(",")))
    if not inherited and not gpu:
        enclose(gpu=gpu)
    if requests:
        mounts = socket.socket(fileno=int(requests))
        mounts.set_inheritable(False)
    else:
        serve_mounts(None, gpu=gpu)


def obtain_root(parts: Iterable[str], own: Sequence[str], shm_bytes: int | None) -> Root | None:
    """Request a root of a worker's own, for processes of this PID namespace.

    Returns None where `parts` has no such wall. Raises OSError.
    """
    if "own_root" not in parts:
        return None
    if mounts is None:
        raise OSError(missing.get("own_root", "there is no process that mounts"))
    return request_root(mounts, own, shm_bytes)


def guard(
    parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool, proc: int | None = None
) -> None:
    """Forbid new privileges and all files but the system's to read and `own` to write.

    Name a folder by a descriptor where another process could exchange what is at its path. `proc`
    is a descriptor of the /proc of a root that is entered later. Raises OSError where a wall cannot
    be put up.
    """
    this_process.forbid_new_privileges()
    if "landlock" in parts:
        # CUDA names its threads in /proc, and the worker's process number is not known yet.
        procs = [PROC, *([f"{PROC}/self/fd/{proc}"] if proc is not None else [])]
        threads = procs if gpu else []
        landlock.restrict(
            [*find_readable_paths(), str(ROOM), *procs], [*own, *_list_writable_devices(), *threads]
        )


def narrow(parts: Iterable[str], own: Iterable[landlock.Place], *, gpu: bool) -> None:
    """Restrict processes, signals, capabilities and system calls, right before untrusted code.

    Raises OSError where a wall cannot be put up.
    """
    if "landlock" in parts and "own_procfs" not in parts:
        itself = f"{PROC}/self"
        # The kernel may forget an inode of /proc and make another, which no rule would name.
        os.set_inheritable(os.open(itself, os.O_PATH), False)
        readable = [path for path in find_readable_paths() if path != PROC]
        # What describes the machine, without its processes.
        names = [name for name in os.listdir(PROC) if not name.isdigit()]
        figures = [f"{PROC}/{name}" for name in names if name not in ("self", "thread-self")]
        threads = [f"{itself}/task"] if gpu else []
        landlock.restrict(
            [*readable, str(ROOM), itself, *figures],
            [*own, *_list_writable_devices(), *threads],
        )
    if "signal_scope" in parts:
        landlock.restrict_signals()
    if "no_capabilities" in parts:
        this_process.drop_capabilities()
    if "seccomp" in parts:
        seccomp.restrict_worker(
            sockets=gpu, modes="own_root" in parts, memory_files=gpu or "memory_group" in parts
        )


def confine_judge(read: Iterable[str], write: Sequence[str]) -> None:
    """Restrict a judge process before it handles tasks, to what starting workers needs.

    It keeps no network, no lake and no home, and of files the system's and those named. Walls that
    the machine does not allow are left out, as for workers. Call it while the process has one
    thread.
    """
    gpu = has_gpu()

    def files() -> None:
        guard([], [], gpu=gpu)
        threads = [PROC] if gpu else []
        landlock.restrict(
            [*find_readable_paths(), *read], [*write, *_list_writable_devices(), *threads]
        )

    def calls() -> None:
        guard([], [], gpu=gpu)
        seccomp.restrict_judge(sockets=gpu, kills_all=landlock.scopes_signals())

    enclose(gpu=gpu)
    top = serve_mounts(write, gpu=gpu)
    if top is not None:
        # Workers are below this process, whose rules hold for the roots that they see as well.
        write = [*write, f"{PROC}/self/fd/{top}"]
    for part in (files, calls):
        if is_possible(part):
            part()
    if top is not None:
        os.close(top)
    this_process.hide_memory()


def is_possible(action: Callable[[], object]) -> bool:
    """Whether an action succeeds in a forked child."""
    return find_failure(action) is None


def find_failure(action: Callable[[], object]) -> str | None:
    """Return why an action fails in a forked child; None where it succeeds.

    This process stays as it is.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
            os.write(writing, text.encode("utf-8", "replace")[:_LONGEST_REASON])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as end:
        status = os.waitpid(pid, 0)[1]
        # A process that the action has started may still hold the other end.
        reason = end.read() if status != 0 else b""
    if status == 0:
        return None
    return reason.decode("utf-8", "replace") or f"the trial ended with status {status}"


def find_available_walls(
    enclosures: Collection[str], scratch: str, *, gpu: bool, left_out: Collection[str] = ()
) -> list[str]:
    """Return the walls that can be put up around a worker here; `missing` has the rest.

    Each is tried in a forked child, in this order, since later ones rest on earlier ones.

    Args:
        enclosures: Namespaces that this process is in already.
        left_out: Walls that are not tried.
    """
    find_readable_paths()  # cached here, before the forks that need it
    parent = os.getpid()
    found: list[str] = []

    def put_up(name: str, trial: Callable[[], object], needed: str | None = None) -> None:
        if needed is not None and needed not in found:
            reason = f"needs {needed}"
        elif name in left_out:
            reason = "the driver of the GPU does not work behind it"
        else:
            reason = find_failure(trial)
        if reason is None:
            found.append(name)
        else:
            missing[name] = reason

    def run_as_first(trial: Callable[[], object]) -> None:
        """Try something as the first process of a PID namespace."""
        this_process.unshare(this_process.NEWPID)
        if reason := find_failure(trial):
            raise OSError(reason)

    def enter_namespace(trial: Callable[[], object]) -> Callable[[], object]:
        """Let a trial run in a PID namespace where workers will."""
        return (lambda: run_as_first(trial)) if "pid_namespace" in found else trial

    def obtain_own_root() -> Root:
        root = obtain_root(["own_root"], [scratch], None)
        assert root is not None
        return root

    def try_root() -> None:
        obtain_own_root().enter()
        _expect(OSError, lambda: os.utime(os.__file__), errno.EROFS)
        Path(scratch, ".tried").write_text("")
        Path(scratch, ".tried").unlink()

    def try_landlock() -> None:
        guard(["landlock"], [scratch], gpu=gpu)
        _expect(PermissionError, lambda: os.listdir("/"))
        if not Path(os.__file__).read_bytes():
            raise OSError(os.__file__)

    def try_signal_scope() -> None:
        guard(["landlock"], [scratch], gpu=gpu)
        _expect(PermissionError, lambda: os.kill(os.getppid(), 0))

    def try_seccomp() -> None:
        guard([], [], gpu=gpu)
        narrow(["seccomp"], [], gpu=gpu)
        _expect(PermissionError, lambda: this_process.unshare(0))

    def try_no_capabilities() -> None:
        narrow(["no_capabilities"], [], gpu=gpu)
        if "CapEff:\t0000000000000000" not in Path("/proc/self/status").read_text():
            raise OSError("capabilities are left")

    def try_own_procfs() -> None:
        root = obtain_own_root()
        guard(found, [scratch], gpu=gpu, proc=root.proc)
        root.enter()
        narrow([*found, "own_procfs"], [scratch], gpu=gpu)
        if "pid_namespace" in found:
            _expect_equal(int(os.readlink(f"{PROC}/self")), 1)
        else:
            _expect(FileNotFoundError, lambda: os.stat(Path(PROC, str(parent))))

    def try_hidden_processes() -> None:
        guard(found, [scratch], gpu=gpu)
        narrow(found, [scratch], gpu=gpu)
        _expect(OSError, Path(PROC, str(parent), "cmdline").read_bytes)

    if gpu:
        missing["pid_namespace"] = SHARED_BY_CUDA
    else:
        put_up("pid_namespace", lambda: run_as_first(lambda: _expect_equal(os.getpid(), 1)))
    put_up("own_root", enter_namespace(try_root))
    put_up("landlock", try_landlock)
    if landlock.scopes_signals():
        put_up("signal_scope", try_signal_scope, needed="landlock")
    else:
        version = landlock.read_version()
        missing["signal_scope"] = f"Landlock of this kernel is version {version}, not 6"
    put_up("seccomp", try_seccomp)
    if "seccomp" in found and "no_network" not in enclosures:
        found.append("no_network")
    put_up("no_capabilities", try_no_capabilities)
    put_up("own_procfs", enter_namespace(try_own_procfs), needed="own_root")
    if "own_procfs" in found:
        found.append("hidden_processes")
    else:
        put_up("hidden_processes", try_hidden_processes)
    if "own_root" in found or "seccomp" in found:
        found.append("fixed_modes")
    else:
        missing["fixed_modes"] = "needs own_root or seccomp"
    for name in found:
        missing.pop(name, None)
    return found


def _expect(
    kind: type[BaseException], action: Callable[[], object], number: int | None = None
) -> None:
    """Raise OSError unless an action fails with an exception of this kind and error number."""
    try:
        action()
    except kind as error:
        if number is None or (isinstance(error, OSError) and error.errno == number):
            return
        raise
    raise OSError("an action that should be refused is not")


def _expect_equal(value: int, expected: int) -> None:
    if value != expected:
        raise OSError(f"{value} is not {expected}")
