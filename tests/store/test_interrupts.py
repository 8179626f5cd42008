"""Ctrl-C: the first one ends a command soon or says what it waits for, the second one at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import commands
import pytest

KEPT = "interrupted; committed rows are kept. Run the command again to resume."
SOON_S = 120.0
"""Far more than a command may take to end, and far less than the programs below would take."""
SETUP = """
import os, signal, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from cyclopts import App
from store.commandline import interrupts, members
from store.lake import attachment

interrupts.GRACE_S = 0.3
app = App(name="room", result_action="return_value")

def is_up():
    sys.stdout.write("up\\n")
    sys.stdout.flush()

@app.command
def go():
    BODY

members.run(app, argv=["go"])
"""
BODIES = {
    "a query": """
        is_up()
        attachment.connect().execute(
            "SELECT sum(hash(a.i * b.i)) FROM range(10000000) AS a(i), range(10000000) AS b(i)"
        )
    """,
    "a library that makes another error of it": """
        is_up()
        try:
            threading.Event().wait()
        except BaseException as error:
            raise ValueError("KeyboardInterrupt") from error
    """,
    "an error that is swallowed": """
        is_up()
        try:
            threading.Event().wait()
        except BaseException:
            pass
        threading.Event().wait()
    """,
    "an error that is swallowed at the end": """
        is_up()
        try:
            threading.Event().wait()
        except BaseException:
            pass
    """,
    "a finalizer": """
        class Ended:
            def __del__(self):
                is_up()
                time.sleep(3600)
        Ended()
        threading.Event().wait()
    """,
    "a wait for a thread": """
        with ThreadPoolExecutor(1) as threads:
            threads.submit(threading.Event().wait)
            is_up()
            threading.Event().wait()
    """,
    "a wait that no signal ends": """
        import ctypes
        libc = ctypes.CDLL(None)
        is_up()
        while True:
            libc.usleep(900000)
            try:
                time.sleep(0)
            except KeyboardInterrupt:
                pass
    """,
    "clean-up that does not end": """
        try:
            is_up()
            threading.Event().wait()
        finally:
            threading.Event().wait()
    """,
    "a child of its session": """
        threading.Thread(
            target=subprocess.run, args=(["sh", "-c", "trap '' INT; echo up; sleep 3600"],)
        ).start()
        threading.Event().wait()
    """,
}


@contextmanager
def running(
    *words: str, body: str | None = None, cwd: Path | None = None
) -> Generator[subprocess.Popen[str]]:
    """Start a program in a session of its own; nothing of it outlives the block."""
    if body is not None:
        lines = [line[4:] for line in body.strip("\n").splitlines()]
        words = ("-c", SETUP.replace("    BODY", "\n".join(lines)))
    started = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )
    try:
        yield started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def wait_until_up(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n", program.communicate()[1]


def list_running(group: int) -> list[str]:
    """Return the states of the processes of a group that are neither gone nor zombies."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, pgrp = file.read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state != "Z":
                found.append(file.parent.name)
    return found


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("whole_group", [False, True])
@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
def test_an_interrupt_ends_a_command_whatever_it_does(body: str, whole_group: bool) -> None:
    with running(body=body) as program:
        wait_until_up(program)
        time.sleep(0.1)
        (os.killpg if whole_group else os.kill)(program.pid, signal.SIGINT)
        _, err = program.communicate(timeout=SOON_S)
        assert (program.returncode, err) == (130, "interrupted.\n")
        until = time.monotonic() + SOON_S
        while list_running(program.pid):  # what was killed takes a moment to end
            assert time.monotonic() < until


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once_what_the_first_one_waits_for() -> None:
    body = """
        try:
            is_up()
            threading.Event().wait()
        finally:
            with interrupts.wait_for("a judge process to end"):
                threading.Event().wait()
    """
    with running(body=body) as program:
        wait_until_up(program)
        program.send_signal(signal.SIGINT)
        assert program.stderr is not None
        assert program.stderr.readline() == (
            "interrupted; waiting for a judge process to end. Press Ctrl-C again to end at once.\n"
        )
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.5)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=SOON_S)
        assert (program.returncode, err) == (130, "")


@pytest.mark.slow
def test_an_interrupt_of_a_slow_import_of_two_threads_ends_the_command(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\nsys.stdout.write('up\\n')\nsys.stdout.flush()\ntime.sleep(3600)\n"
    )
    body = f"""
        sys.path.insert(0, {str(tmp_path)!r})
        with ThreadPoolExecutor(1) as threads:
            lock = __import__("importlib")._bootstrap._get_module_lock("slow")
            try:
                import slow
            finally:
                lock.acquire()  # as an interrupt between its taking and its release leaves it
                threads.submit(__import__, "slow")
    """
    with running(body=body) as program:
        wait_until_up(program)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=SOON_S)
        assert (program.returncode, err) == (130, "interrupted.\n")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("script", "module", "note"),
    [
        ("store", "pyarrow.dataset", KEPT),
        ("store", "store.cli.app", "interrupted."),
        ("kf", "cyclopts", "interrupted."),
    ],
)
def test_an_import_is_interrupted_where_the_modules_of_a_command_are_slow(
    tmp_path: Path, script: str, module: str, note: str
) -> None:
    project = tomllib.loads((commands.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    program = f"""
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.stdout.write("up\\n")
            sys.stdout.flush()
            time.sleep(3600)
sys.meta_path.insert(0, Slow())
import pkgutil
pkgutil.resolve_name({project["scripts"][script]!r})()
"""
    with running("-c", program, "import", "starter", cwd=tmp_path) as started:
        wait_until_up(started)
        started.send_signal(signal.SIGINT)
        _, err = started.communicate(timeout=SOON_S)
        assert (started.returncode, err.splitlines()[-1]) == (130, note)
        assert "Traceback" not in err


IMPORTS_OF_THREADS = """
import sys, threading
class Noted:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            sys.stderr.write(f"{name} is imported by a thread\\n")
sys.meta_path.insert(0, Noted())
from store.commandline import interrupts
interrupts.start(sys.argv.pop(1))
"""


@pytest.mark.slow
def test_threads_import_nothing(tmp_path: Path) -> None:
    for room, *words in (["store", "import", "starter"], ["evaluators", "audit", "--limit", "5"]):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTS_OF_THREADS, f"{room}.cli.app", *words],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "imported by a thread" not in done.stderr


@pytest.mark.slow
def test_the_explorer_ends_while_a_page_listens(tmp_path: Path) -> None:
    commands.run(["store", "init"], cwd=tmp_path)
    with running("-m", "store", "explore", "--port", "0", cwd=tmp_path) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[0]
        with urllib.request.urlopen(f"{url}events", timeout=SOON_S) as events:
            assert events.readline() == b"event: snapshot\n"
            server.send_signal(signal.SIGINT)
            _, err = server.communicate(timeout=SOON_S)
        assert server.returncode == 130
        assert err.endswith("\ninterrupted.\n")
        assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "csv"])
def test_a_reader_that_closes_its_pipe_early_is_no_error(tmp_path: Path, form: str) -> None:
    commands.run(["store", "init"], cwd=tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    words = ["query", "--format", form, "SELECT 1 AS n"]
    done = subprocess.run(
        [sys.executable, "-m", "store", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        cwd=tmp_path,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_random_interrupts_end_commands_and_leave_a_lake_clean() -> None:
    """The short form of benchmarks/interrupt.py."""
    words = ["--interrupts", "12", "--only", "import", "query", "compact", "backup"]
    done = subprocess.run(
        [sys.executable, "benchmarks/interrupt.py", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=commands.ROOT,
        env={**os.environ, "PATIENCE": "15"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
