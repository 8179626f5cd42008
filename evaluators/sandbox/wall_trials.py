"""Which walls this machine allows around a worker, found by putting each up in a forked child."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from evaluators.sandbox import isolation
from evaluators.sandbox.linux import landlock, namespaces
from evaluators.sandbox.linux.mounts import Root
from evaluators.sandbox.paths import PROC, find_readable_paths
from evaluators.sandbox.trial import (
    expect_equal,
    expect_errno,
    expect_exception,
    find_failure,
)


def find_available_walls(
    enclosures: Iterable[str], scratch: str, *, gpu: bool, left_out: Iterable[str] = ()
) -> list[str]:
    """Return the walls that can be put up around a worker here; `isolation.missing` has the rest.

    Args:
        enclosures: Namespaces that this process is in already.
        scratch: A writable folder.
        gpu: Whether workers use a GPU.
        left_out: Walls that are not tried.
    """
    find_readable_paths()  # cached here, before the forks that need it
    return _Trials(set(enclosures), scratch, gpu=gpu, left_out=set(left_out)).run()


class _Trials:
    """Tries the walls in their order, since later ones rest on earlier ones."""

    def __init__(
        self, enclosures: set[str], scratch: str, *, gpu: bool, left_out: set[str]
    ) -> None:
        self._enclosures = enclosures
        self._scratch = scratch
        self._gpu = gpu
        self._left_out = left_out
        self._parent = os.getpid()
        self._found: list[str] = []

    def run(self) -> list[str]:
        """Try every wall and return those that hold."""
        if self._gpu:
            isolation.missing["pid_namespace"] = isolation.SHARED_BY_CUDA
        else:
            self._try("pid_namespace", lambda: _run_as_first(_expect_first))
        self._try("own_root", self._enter_namespace(self._try_root))
        self._try("landlock", self._try_landlock)
        self._try_signal_scope()
        self._try("seccomp", self._try_seccomp)
        if self._has("seccomp") and "no_network" not in self._enclosures:
            self._found.append("no_network")
        self._try("no_capabilities", self._try_no_capabilities)
        self._require("own_procfs", "own_root", self._enter_namespace(self._try_own_procfs))
        if self._has("own_procfs"):
            self._found.append("hidden_processes")
        else:
            self._try("hidden_processes", self._try_hidden_processes)
        if self._has("own_root") or self._has("seccomp"):
            self._found.append("fixed_modes")
        else:
            isolation.missing["fixed_modes"] = "needs own_root or seccomp"
        for name in self._found:
            isolation.missing.pop(name, None)
        return self._found

    def _has(self, name: str) -> bool:
        return name in self._found

    def _try(self, name: str, part: Callable[[], object]) -> None:
        if name in self._left_out:
            reason = "the driver of the GPU does not work behind it"
        else:
            reason = find_failure(part)
        if reason is None:
            self._found.append(name)
        else:
            isolation.missing[name] = reason

    def _require(self, name: str, needed: str, part: Callable[[], object]) -> None:
        """Try a wall that needs another one."""
        if self._has(needed):
            self._try(name, part)
        else:
            isolation.missing[name] = f"needs {needed}"

    def _enter_namespace(self, part: Callable[[], object]) -> Callable[[], object]:
        """Let a trial run in a PID namespace where workers will."""
        return (lambda: _run_as_first(part)) if self._has("pid_namespace") else part

    def _obtain_root(self) -> Root:
        root = isolation.obtain_root(["own_root"], [self._scratch], None)
        assert root is not None
        return root

    def _try_root(self) -> None:
        self._obtain_root().enter()
        expect_errno(errno.EROFS, lambda: os.utime(os.__file__))
        Path(self._scratch, ".tried").write_text("")
        Path(self._scratch, ".tried").unlink()

    def _try_landlock(self) -> None:
        isolation.guard(["landlock"], [self._scratch], gpu=self._gpu)
        expect_exception(PermissionError, lambda: os.listdir("/"))
        if not Path(os.__file__).read_bytes():
            raise OSError(os.__file__)

    def _try_signal_scope(self) -> None:
        if not landlock.scopes_signals():
            version = landlock.read_version()
            reason = f"Landlock of this kernel is version {version}, not 6"
            isolation.missing["signal_scope"] = reason
        else:
            self._require("signal_scope", "landlock", self._try_scoped_signals)

    def _try_scoped_signals(self) -> None:
        isolation.guard(["landlock"], [self._scratch], gpu=self._gpu)
        expect_exception(PermissionError, lambda: os.kill(os.getppid(), 0))

    def _try_seccomp(self) -> None:
        isolation.guard([], [], gpu=self._gpu)
        isolation.narrow(["seccomp"], [], gpu=self._gpu)
        expect_exception(PermissionError, lambda: namespaces.unshare(0))

    def _try_no_capabilities(self) -> None:
        isolation.narrow(["no_capabilities"], [], gpu=self._gpu)
        if "CapEff:\t0000000000000000" not in Path("/proc/self/status").read_text():
            raise OSError("capabilities are left")

    def _try_own_procfs(self) -> None:
        root = self._obtain_root()
        isolation.guard(self._found, [self._scratch], gpu=self._gpu, proc=root.proc)
        root.enter()
        isolation.narrow([*self._found, "own_procfs"], [self._scratch], gpu=self._gpu)
        if self._has("pid_namespace"):
            expect_equal(int(os.readlink(f"{PROC}/self")), 1)
        else:
            expect_exception(FileNotFoundError, lambda: os.stat(Path(PROC, str(self._parent))))

    def _try_hidden_processes(self) -> None:
        isolation.guard(self._found, [self._scratch], gpu=self._gpu)
        isolation.narrow(self._found, [self._scratch], gpu=self._gpu)
        command_line = Path(PROC, str(self._parent), "cmdline")
        expect_exception(OSError, command_line.read_bytes)


def _expect_first() -> None:
    expect_equal(os.getpid(), 1)


def _run_as_first(part: Callable[[], object]) -> None:
    """Try something as the first process of a PID namespace. Raises OSError with its failure."""
    namespaces.start_process_namespace()
    reason = find_failure(part)
    if reason is not None:
        raise OSError(reason)
