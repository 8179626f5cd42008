"""The template: a process that imports torch once and forks the fork servers of a judge.

Importing torch takes a core a second or more, and a judge has at least four fork servers. As forks
of the template, they share the import and its memory. Like them, it runs no foreign code.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from evaluators.processes import messages
from evaluators.sandbox import isolation
from evaluators.sandbox.folders import remove_folder
from store.errors import SandboxFailed

_PACKAGE = str(Path(__file__).resolve().parent.parent / "__init__.py")
_END_LIMIT_S = 60.0
_MOST_JOBS = 32  # each is about five processes of a compiler
# The package is loaded by its path, because its parent folder may hold a lake and must not be
# listed. Collecting garbage would take a tenth of the time of the imports. The process exits
# without Python's cleanup, which takes a while once torch is loaded.
_START = """
import gc, importlib.util, os, sys
gc.disable()
spec = importlib.util.spec_from_file_location("evaluators", sys.argv[1])
sys.modules["evaluators"] = importlib.util.module_from_spec(spec)
from evaluators.sandbox import isolation
isolation.begin_template(*sys.argv[3:5])
from evaluators.worker.template import main
main(int(sys.argv[2]))
isolation.end_helpers()
os._exit(0)
"""
_PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
    "LD_LIBRARY_PATH",
    "TORCH_CUDA_ARCH_LIST",
    "CC",
    "CXX",
)


class Template:
    """A process that forks fork servers. Use it as a context manager.

    It starts with `begin` or the first fork server, and again with the next one where it has ended.
    Its fork servers end with it.
    """

    def __init__(self, threads: int, environment: Mapping[str, str] | None = None) -> None:
        """Prepare to start it.

        Args:
            threads: Threads of each loop in the workers.
            environment: Variables to add to the white-listed ones.
        """
        self._threads = threads
        self._given = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process number; 0 before the first fork server."""
        return 0 if self._process is None else self._process.pid

    def begin(self) -> None:
        """Start it, unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._start()

    def fork(
        self,
        marker: str,
        control: socket.socket,
        environment: Mapping[str, str],
        warm: Sequence[str],
    ) -> None:
        """Begin to fork a fork server.

        Args:
            marker: Its value of the variable `isolation.MARKER`.
            control: Its end of its channel.
            environment: Variables to add.
            warm: Modules to import.

        Raises:
            SandboxFailed: it cannot be started.
        """
        self.begin()
        order = {
            "do": "fork",
            "marker": marker,
            # The architecture of the GPU is known only after the template has begun.
            "environment": _read_passed_on() | dict(environment),
            "warm": list(warm),
        }
        try:
            messages.send(self._control, order, [control.fileno()])
        except messages.Closed as error:
            raise SandboxFailed(
                "the process that imports torch has ended",
                "If the machine has too little memory, use fewer judges. Run the command again.",
            ) from error

    @property
    def has_started(self) -> bool:
        """Whether it has imported torch, or has ended since."""
        return self._process is not None and bool(select.select([self._control], [], [], 0)[0])

    def kill(self, marker: str) -> None:
        """Kill a fork server. Where the template has ended, the fork server has as well."""
        if self._process is None:
            return
        with contextlib.suppress(messages.Closed):
            messages.send(self._control, {"do": "kill", "marker": marker})

    def close(self) -> None:
        """End the process, and the fork servers that are left."""
        if self._process is None:
            return
        if not self.has_started:
            self._process.kill()  # it would notice the end of its channel only after its imports
        self._control.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
        remove_folder(Path(self._scratch))

    def _start(self) -> None:
        self._scratch = tempfile.mkdtemp(prefix="flywheel-")
        self._control, theirs = messages.make_pair()
        mounts = [] if isolation.mounts is None else [isolation.mounts.fileno()]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-u", "-c", _START, _PACKAGE, str(theirs.fileno())),
                *(",".join(isolation.inherited), ",".join(map(str, mounts))),
            ],
            env=self._environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), *mounts],
            start_new_session=True,
        )
        theirs.close()

    def _environment(self) -> dict[str, str]:
        """Return the white-listed variables; the rest of our environment is not passed on."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        threads = str(self._threads)
        return _read_passed_on() | {
            "PATH": path,
            "LANG": "C.UTF-8",
            "HOME": self._scratch,
            "TMPDIR": self._scratch,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # Threads that spin while they wait take the cores from the threads that compute.
            "OMP_WAIT_POLICY": "PASSIVE",
            "MAX_JOBS": str(min(_MOST_JOBS, len(os.sched_getaffinity(0)))),
            isolation.MARKER: bytes(isolation.MARK_BYTES).hex(),
            **self._given,
        }


def _read_passed_on() -> dict[str, str]:
    """Return the white-listed variables that are set."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
