"""Runs the rooms' commands as processes, without an interpreter's start for each.

A server process imports the rooms and reads the catalog and the views once, and forks for every
command: the fork runs `python -m ROOM` in its own folder and environment, on its own standard
streams. What a command does is the same as when it is typed, but for the seconds of its imports.
Tests of the start itself (`--help` imports no GPU stack) start an interpreter of their own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import resource
import runpy
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import one_thread
import short_sessions

from store.lake import attachment, user_sql
from store.lake.sql_files import list_views, read_view
from store.schema import catalog

ROOT = Path(__file__).parent.parent
ROOMS = ("store", "pipelines", "evaluators", "trainers")
LIBRARIES = (
    "store.lake.reader", "store.writing.writer", "duckdb", "httpx2", "jinja2", "pandas",
    "polars", "pyarrow.dataset", "pyarrow.parquet", "rich.console", "rich.table",
    "tree_sitter_cuda",
)  # fmt: skip
"""What most commands import, beside the command lines of the rooms."""
ORPHAN_AGE_S = "FLYWHEEL_TESTS_ORPHAN_AGE_S"
"""Variable of the environment that makes orphans of a lake old at another age."""
KILL_AT = "FLYWHEEL_TESTS_KILL_AT"
"""Variable of the environment that kills a command when it changes files for the nth time."""
ADDRESS = "FLYWHEEL_TESTS_COMMANDS"
"""Variable of the environment with the address of the server that all processes of a run share."""
_MESSAGE_BYTES = 1 << 20


def run(
    words: Sequence[str],
    *,
    cwd: Path | str,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    timeout: float = 300,
    unprivileged: bool = False,
    limits: Mapping[str, int] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS`, `kf` or a file; return its exit code and what it wrote, as UTF-8.

    Args:
        words: Room and arguments.
        cwd: Folder to run in.
        env: Its whole environment; None is this process's.
        stdin: Text to read from the standard input.
        timeout: Seconds that it may take.
        unprivileged: Whether root has no more rights over the files of others than other users.
        limits: Limits of its resources by their names, such as RLIMIT_NOFILE.

    Raises:
        subprocess.TimeoutExpired: it takes longer than `timeout` seconds; it is killed.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode("utf-8", "surrogatepass"))
        given.seek(0)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        job = {
            "words": [*words], "cwd": str(cwd), "env": dict(os.environ if env is None else env),
            "unprivileged": unprivileged, "limits": dict(limits or {}),
        }  # fmt: skip
        code = _server().run(job, streams, timeout)
        texts: list[str] = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode("utf-8"))
        return subprocess.CompletedProcess([*words], code, *texts)


def start_server() -> None:
    """Start the server for this process and the test processes that it starts."""
    from example_counts import is_thorough  # the server need not import hypothesis

    address = f"flywheel-tests-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{address}")
        listening.listen()
        process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                str(listening.fileno()),
                "thorough" if is_thorough() else "few",
            ],
            pass_fds=[listening.fileno()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
        )
    os.environ[ADDRESS] = address

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()

    atexit.register(end)


class _Server:
    """A connection to the server, which forks a process of its own for it."""

    def __init__(self) -> None:
        if ADDRESS not in os.environ:
            start_server()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(f"\0{os.environ[ADDRESS]}")

    def run(self, job: dict[str, Any], streams: list[int], timeout: float) -> int:
        socket.send_fds(self._socket, [json.dumps(job).encode()], streams)
        pid = int(self._socket.recv(_MESSAGE_BYTES) or 0)
        assert pid, "the server of commands has ended"
        self._socket.settimeout(timeout)
        try:
            return int(self._socket.recv(_MESSAGE_BYTES))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(_MESSAGE_BYTES)
            raise subprocess.TimeoutExpired(job["words"], timeout) from None
        finally:
            self._socket.settimeout(None)

    def close(self) -> None:
        self._socket.close()


@cache
def _server() -> _Server:
    opened = _Server()
    atexit.register(opened.close)
    return opened


def _next_connection(listening: socket.socket) -> socket.socket:
    """Fork for every test process that connects; return the connection in the fork.

    Once the standard input is closed, wait for the forks and end.
    """
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            return connection
        connection.close()
    listening.close()
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def _next_job(connection: socket.socket) -> dict[str, Any]:
    """Fork for every job; return in the fork, with the job's streams as the standard ones."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, _MESSAGE_BYTES, 3)
        if not message:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            connection.close()
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.closerange(3, 1024)
            return json.loads(message)
        for stream in streams:
            os.close(stream)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _kill_at(step: int) -> None:
    """Kill this process at its nth change of files, as Python reports them to audit hooks."""
    changes = ("os.rename", "os.mkdir", "os.remove", "os.chmod", "os.truncate", "shutil.copyfile")
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if writes or event in changes:
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def _drop_capabilities() -> None:
    """Give up what root may do beyond other users, also for programs that are started."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(28, 3, 0, 0, 0)  # PR_SET_SECUREBITS: nor does a child of this process get it back
    if libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def fork_parquet_checks() -> None:
    """Decode Parquet files in forks, where this process would start an interpreter for it."""
    parquet = importlib.import_module("store.foreign.parquet")

    def check(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return run([words[-1]], cwd=ROOT, stdin=options["input"])

    vars(parquet)["subprocess"] = SimpleNamespace(run=check)


def _fork_children() -> None:
    """Fork the interpreters that a command starts: what answers queries and what decodes Parquet.

    `preexec_fn` runs in the new process, on its own streams, and does not return. Tests that open a
    QueryProcess themselves start it as users do.
    """
    query_process = importlib.import_module("store.guard.query_process")
    parquet = importlib.import_module("store.foreign.parquet")

    def call(main: Callable[[], object]) -> None:
        os.closerange(3, 1024)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, "w" if n else "r") for n in range(3))
        vars(sys)["modules"]["numpy"] = None
        code = 1
        try:
            main()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def fork_into(module: ModuleType, name: str, main: Callable[[], object]) -> None:
        start = functools.partial(vars(subprocess)[name], preexec_fn=functools.partial(call, main))
        vars(module)["subprocess"] = SimpleNamespace(**{**vars(subprocess), name: start})

    check = functools.partial(runpy.run_path, str(parquet.PROGRAM), run_name="__main__")
    fork_into(query_process, "Popen", query_process.main)
    fork_into(parquet, "run", check)


def _serve() -> None:
    for name in (*(f"{room}.cli.app" for room in ROOMS), "trainers.cli.kf", *LIBRARIES):
        importlib.import_module(name)
    catalog.load()
    one_thread.use_one_thread()
    with closing(attachment.connect(spill=Path(tempfile.gettempdir()))) as connection:
        for name in list_views():
            user_sql.list_names(connection, read_view(name))
    if sys.argv[2] == "few":
        short_sessions.use_in_judges()
    gc.freeze()
    job = _next_job(_next_connection(socket.socket(fileno=int(sys.argv[1]))))
    if job["unprivileged"]:
        _drop_capabilities()
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    if step := os.environ.pop(KILL_AT, None):
        _kill_at(int(step))
    if age_s := os.environ.pop(ORPHAN_AGE_S, None):
        maintenance = importlib.import_module("store.upkeep.maintenance")
        vars(maintenance)["ORPHAN_AGE"] = timedelta(seconds=float(age_s))
    _fork_children()
    sys.path[0] = job["cwd"]
    sys.argv = job["words"]
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    code = 0
    try:
        if job["words"][0] == "kf":
            importlib.import_module("trainers.__main__").kf()
        elif job["words"][0].endswith(".py"):
            if job["words"][0] == str(importlib.import_module("store.foreign.parquet").PROGRAM):
                vars(sys)["modules"]["numpy"] = None
            runpy.run_path(job["words"][0], run_name="__main__")
        else:
            runpy.run_module(job["words"][0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()


def is_running(pid: int) -> bool:
    """Whether a process is neither gone nor waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def has_ended(pid: int, limit_s: float = 120.0) -> bool:
    """Whether a process ends within a time that a busy machine keeps.

    A process closes its files before it is gone: its closed channel may be seen earlier.
    """
    until = time.monotonic() + limit_s
    while is_running(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
