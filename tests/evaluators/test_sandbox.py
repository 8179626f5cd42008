"""What hostile code can reach from inside a worker. Every attack runs in a real one.

A wall that this machine does not grant is named in the reason of a skip; what has to hold without
any wall never skips.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from commands import has_ended

from evaluators.cli.app import app
from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.processes import cgroup
from evaluators.processes.process_tree import count_held_bytes, count_threads_below
from evaluators.sandbox import doctor, isolation
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.folders import remove_folder
from evaluators.sandbox.isolation import find_failure, is_possible
from evaluators.sandbox.launcher import Ended, ForkServer, Limits, Template
from evaluators.sandbox.linux import landlock, mounts, seccomp
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle, start_worker

SECRET = "not for candidates"
LIMITS = Limits(memory_bytes=2**30, file_bytes=2**22, open_files=256, cpu_s=60)
DEADLINES = Deadlines(import_s=120, build_s=600, first_call_s=120, call_s=120, total_s=600)
SETTING = {"device": "cpu", "threads": 1, "flush_bytes": 0}


@dataclass(frozen=True)
class Tried:
    """What an attack brought, and how its worker ended."""

    failed: Failed | None
    ended: Ended
    survivors: list[str]

    @property
    def log(self) -> str:
        """What it printed."""
        return self.ended.log


Attack = Callable[..., Tried]


@pytest.fixture
def attack(fork_server: ForkServer) -> Attack:
    """Return a function that imports a text in a worker of its own and ends it."""

    def run_attack(text: str, limits: Limits = LIMITS, deadlines: Deadlines = DEADLINES) -> Tried:
        before = set(count_threads_below(os.getpid()))
        sizes = Sizes(64, 64)
        started = start_worker(
            fork_server,
            {"kernel.py": textwrap.dedent(text)},
            setting=SETTING,
            limits=limits,
            sizes=sizes,
        )
        handle = WorkerHandle(started, sizes, deadlines=deadlines, trusted=False)
        failed = None
        try:
            handle.prepare()
            handle.load("kernel.py", "ModelNew", {})
        except Failed as error:
            failed = error
        ended = handle.end()
        left = [pid for pid in count_threads_below(os.getpid()) if pid not in before]
        return Tried(failed, ended, [Path(f"/proc/{pid}/comm").read_text() for pid in left])

    return run_attack


@pytest.fixture
def require_walls(fork_server: ForkServer) -> Callable[..., None]:
    """Return a function that skips where the machine grants none of the walls named."""

    def require_some(*walls: str) -> None:
        if not set(walls) & set(fork_server.limits):
            pytest.skip(f"this machine grants none of: {', '.join(walls)}")

    return require_some


TRY = """
import ctypes, json, os, signal, socket
ModelNew = object
C = ctypes.CDLL(None, use_errno=True)
def tried(f):
    try:
        return ["did", str(f())[:4000]]
    except Exception as error:
        return ["refused", repr(error)]
def called(number, *arguments):
    if C.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
"""


def read_found(tried: Tried) -> dict[str, list[str]]:
    """The JSON that an attack has printed as its last line."""
    assert tried.failed is None, (str(tried.failed), tried.log)
    return json.loads(tried.log.strip().splitlines()[-1])


def test_files_of_others_cannot_be_read(
    attack: Attack, tmp_path: Path, require_walls: Callable[..., None]
) -> None:
    require_walls("landlock")
    lake = tmp_path / "lake" / "catalog.sqlite"
    lake.parent.mkdir()
    lake.write_text(SECRET)
    home = Path(os.path.expanduser(f"~{os.environ.get('USER', 'root')}"))
    tests = Path(__file__).parent
    kept = Path(__file__).parents[2] / "store" / "starter" / "tasks"
    paths = {"lake": lake, "folder": lake.parent, "home": home, "tests": tests, "tasks": kept}
    answer = read_found(
        attack(
            TRY + f"paths = { ({k: str(v) for k, v in paths.items()})!r}\n"
            "read = lambda p: os.listdir(p) if os.path.isdir(p) else open(p).read()\n"
            "print(json.dumps({k: tried(lambda: read(p)) for k, p in paths.items()}))\n"
        )
    )
    assert {name: what for name, (what, _) in answer.items()} == dict.fromkeys(paths, "refused")


def test_nothing_is_written_outside_its_folder(
    attack: Attack, tmp_path: Path, require_walls: Callable[..., None]
) -> None:
    require_walls("landlock")
    there = tmp_path / "there"
    there.write_text(SECRET)
    answer = read_found(
        attack(
            TRY
            + f"""
there, new = {str(there)!r}, {str(tmp_path / "new")!r}
os.symlink(there, "link")
attempts = {{
    "new": lambda: open(new, "w"), "folder": lambda: os.mkdir(new),
    "over": lambda: open(there, "w"), "cut": lambda: os.truncate(there, 0),
    "gone": lambda: os.unlink(there), "link": lambda: open("link", "w"),
    "hard": lambda: os.link(there, "hard"), "moved": lambda: os.rename(there, "moved"),
    "tmp": lambda: open("/tmp/flywheel-was-here", "w"),
    "sibling": lambda: os.listdir(".."),
    "kernel": lambda: open("/proc/sys/kernel/core_pattern", "w"),
    "device": lambda: os.mknod("node", 0o20666, os.makedev(1, 1)),
}}
print(json.dumps({{k: tried(f) for k, f in attempts.items()}}))
"""
        )
    )
    assert {what for what, _ in answer.values()} == {"refused"}, answer
    assert there.read_text() == SECRET
    assert os.listdir(tmp_path) == ["there"]


def test_other_processes_cannot_be_looked_into(
    attack: Attack,
    template: Template,
    fork_server: ForkServer,
    require_walls: Callable[..., None],
) -> None:
    require_walls("landlock", "pid_namespace")
    below = count_threads_below(template.pid)
    pids = [os.getpid(), template.pid, *below]
    assert fork_server.pid in below
    answer = read_found(
        attack(
            TRY
            + f"""
found = {{}}
for pid in {pids!r} + [os.getppid()]:
    for name in ("environ", "mem", "maps", "fd/0", "cwd/.", "root/etc"):
        found[f"{{pid}} {{name}}"] = tried(lambda: os.open(f"/proc/{{pid}}/{{name}}", os.O_RDONLY))
print(json.dumps(found))
"""
        )
    )
    own = {name: what for name, what in answer.items() if what[0] != "refused"}
    # What the worker sees under its parent's number is another process where it has its own count.
    assert {name for name in own if int(name.split()[0]) in pids} == set(), own


def test_other_processes_cannot_be_signalled_or_throttled(
    attack: Attack,
    template: Template,
    fork_server: ForkServer,
    require_walls: Callable[..., None],
) -> None:
    require_walls("pid_namespace", "signal_scope")
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        answer = read_found(
            attack(
                TRY
                + f"""
found = {{}}
for pid in ({os.getpid()}, {template.pid}, {fork_server.pid}, {other.pid}, os.getppid()):
    found[f"kill {{pid}}"] = tried(lambda: os.kill(pid, 9) if pid > 1 else os.kill(pid, 0) or 1/0)
    found[f"pidfd {{pid}}"] = tried(
        lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9) if pid > 1 else 1/0)
found["all"] = tried(lambda: os.kill(-1, 9))
print(json.dumps(found))
"""
            )
        )
        assert {what for what, _ in answer.values()} == {"refused"}, answer
        assert fork_server.is_alive
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


NUMBERS = {"ptrace": 101, "process_vm_readv": 310, "kcmp": 312, "bpf": 321, "userfaultfd": 323}
NUMBERS |= {"perf_event_open": 298, "keyctl": 250, "add_key": 248, "io_uring_setup": 425}
NUMBERS |= {"pidfd_getfd": 438, "open_by_handle_at": 304, "unshare": 272, "setns": 308}
NUMBERS |= {"mount": 165, "reboot": 169, "swapon": 167, "init_module": 175, "seccomp": 317}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of another architecture")
def test_system_calls_of_attacks_are_refused_and_others_go_on(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("seccomp")
    answer = read_found(
        attack(
            TRY
            + f"""
import subprocess, threading
numbers = {NUMBERS!r}
found = {{name: tried(lambda: called(n, 0, 0, 0, 0, 0, 0)) for name, n in numbers.items()}}
found["clone"] = tried(lambda: called(56, 0x10000000 | 17, 0, 0, 0, 0))
found["foreign"] = tried(lambda: called(0x40000000 + 39))
found["prctl"] = tried(lambda: C.prctl(22, 2, 0) and (_ for _ in ()).throw(OSError(1, "")))
done = []
thread = threading.Thread(target=lambda: done.append("thread")); thread.start(); thread.join()
found["honest"] = done + [subprocess.run(["true"]).returncode]
print(json.dumps(found))
"""
        )
    )
    assert answer.pop("honest") == ["thread", 0]
    refused = {name for name, (what, why) in answer.items() if what == "refused" and "(1," in why}
    assert refused == set(answer), answer


def test_there_is_no_network(attack: Attack, require_walls: Callable[..., None]) -> None:
    require_walls("no_network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answer = read_found(
            attack(
                TRY
                + f"""
found = {{
    "tcp": tried(lambda: socket.create_connection(("127.0.0.1", {port}), 2)),
    "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
        b"x", ("127.0.0.1", {port}))),
    "six": tried(lambda: socket.create_connection(("::1", {port}), 2)),
    "raw": tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
}}
print(json.dumps(found))
"""
            )
        )
    assert {what for what, _ in answer.values()} == {"refused"}, answer


def test_a_worker_has_no_capabilities(attack: Attack, require_walls: Callable[..., None]) -> None:
    require_walls("no_capabilities")
    answer = read_found(
        attack(
            TRY + "lines = open('/proc/self/status').read().splitlines()\n"
            "print(json.dumps(dict(l.split(':\\t') for l in lines if l.startswith(('Cap', 'No')))))"
        )
    )
    assert answer["NoNewPrivs"] == "1"
    assert {int(answer[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}


BOMBS = {
    "processes": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
    "threads": (
        "import _thread, time\n_thread.stack_size(65536)\n"
        "while True:\n"
        "    try: _thread.start_new_thread(time.sleep, (600,))\n"
        "    except (RuntimeError, MemoryError): time.sleep(0.01)\n"
    ),
    "daemons": (
        "import os, signal\n"
        "for n in range(1, 65):\n"
        "    if n not in (9, 19, 32, 33): signal.signal(n, signal.SIG_IGN)\n"
        "while True:\n"
        "    try:\n"
        "        if os.fork() == 0:\n"
        "            os.setsid()\n"
        "            if os.fork(): os._exit(0)\n"
        "    except OSError: pass\n"
    ),
}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends(name: str, attack: Attack) -> None:
    tried = attack(BOMBS[name], replace(LIMITS, processes=40, threads=200))
    assert tried.failed is not None
    assert (tried.failed.status, tried.failed.reason) == ("crash", "signal"), tried.failed
    assert tried.ended.excess is not None
    assert "processes with" in tried.ended.excess
    assert tried.survivors == []


def test_a_full_disk_is_prevented(attack: Attack) -> None:
    fill = """
        n = 0
        while True:
            with open(f"part-{n}", "wb") as file:
                file.write(bytes(1 << 20))
            n += 1
    """
    tried = attack(fill, replace(LIMITS, disk_bytes=2**26))
    assert tried.failed is not None
    assert "bytes in files" in (tried.ended.excess or ""), (tried.failed, tried.ended)


def test_memory_taken_by_many_processes_counts_together(attack: Attack) -> None:
    bomb = """
        import os, time
        for _ in range(5):
            if os.fork() == 0:
                block = bytearray(os.urandom(1 << 20) * 200)
                time.sleep(600)
        time.sleep(600)
    """
    tried = attack(bomb, replace(LIMITS, memory_bytes=2**29))
    assert "bytes of memory" in (tried.ended.excess or ""), (tried.failed, tried.ended)
    assert tried.survivors == []


def test_a_flood_of_output_is_cut_and_can_be_stored(attack: Attack) -> None:
    tried = attack(
        """
        import os
        os.write(1, b"begin\\x00\\xff")
        try:
            while True:
                os.write(1, b"x" * 65536)
        except OSError:
            pass
        ModelNew = object
        """
    )
    assert tried.log.startswith("begin\\xff")
    assert "bytes left out" in tried.log
    assert len(tried.log) < 100_000


STRAYS = {
    "a daemon that left its session": """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 256)
                time.sleep(600)
            os._exit(0)
        time.sleep(0.1)
        ModelNew = object
    """,
    "one that ignores every signal": """
        import os, signal, time
        if os.fork() == 0:
            for n in range(1, 65):
                if n not in (9, 19, 32, 33):
                    signal.signal(n, signal.SIG_IGN)
            while True:
                time.sleep(1)
        ModelNew = object
    """,
    "one that starts its successor": """
        import os, time
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
                os.setsid()
        ModelNew = object
    """,
    "one of another program": """
        import subprocess
        subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
        ModelNew = object
    """,
}


@pytest.mark.slow
def test_every_end_is_accounted_for_on_a_busy_machine(attack: Attack) -> None:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        ends = [attack("ModelNew = object").ended for _ in range(80)]
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert [end for end in ends if end.peak_memory_bytes is None] == []


@pytest.mark.parametrize("name", STRAYS)
def test_nothing_that_it_started_survives(name: str, attack: Attack) -> None:
    tried = attack(STRAYS[name])
    assert tried.failed is None, tried.log
    assert tried.survivors == []
    assert tried.ended.strays >= 1 or "successor" in name


def test_a_worker_that_is_gone_takes_its_orphans_along(attack: Attack) -> None:
    tried = attack("import os, time\nif os.fork() == 0: time.sleep(600)\nos._exit(3)\n")
    assert tried.failed is not None
    assert (tried.failed.reason, tried.ended.code) == ("early_exit", 3)
    assert (tried.ended.strays, tried.survivors) == (1, [])


def test_a_group_ends_with_all_that_was_forked_in_it() -> None:
    if not is_possible(cgroup.try_kill):
        pytest.skip("no control groups can be made here")
    group = cgroup.Group()
    folder = group.folder
    first = os.fork()
    if first == 0:
        group.take()
        while True:  # each leaves its session and its parent, and is gone when it is looked for
            if os.fork():
                os._exit(0)
            os.setsid()
    os.waitpid(first, 0)
    group.kill()
    until = time.monotonic() + 120
    while (folder / "cgroup.procs").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    assert (folder / "cgroup.procs").read_text() == ""
    group.remove()
    assert not folder.exists()


def test_a_worker_is_in_a_group_that_it_cannot_leave(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("cgroup")
    require_walls("landlock")
    tried = attack(
        TRY
        + f"""
out = str({str(cgroup.find_own_group())!r})
print(json.dumps({{
    "in": ["did", open("/proc/self/cgroup").read()],
    "leave": tried(lambda: open(out + "/cgroup.procs", "w").write("0")),
    "make": tried(lambda: os.mkdir(out + "/flywheel-mine")),
}}))
"""
    )
    answer = read_found(tried)
    assert "/flywheel-" in answer["in"][1]
    assert answer["leave"][0] == answer["make"][0] == "refused", answer
    assert not [*cgroup.find_own_group().glob("flywheel-mine")]


def test_noise_on_every_descriptor_is_no_answer(attack: Attack, fork_server: ForkServer) -> None:
    tried = attack(
        """
        import os
        for fd in range(256):
            try:
                os.write(fd, b'{"number": "0", "found": true}')
            except OSError:
                pass
        ModelNew = object
        """
    )
    assert tried.failed is not None
    assert tried.failed.status == "rejected"
    assert fork_server.is_alive


def test_its_folder_goes_whatever_it_holds(attack: Attack, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text(SECRET)
    tried = attack(
        f"""
        import os
        print(os.getcwd())
        os.symlink({str(outside)!r}, "link")
        os.symlink({str(outside)!r}, b"\\xff\\n\\x01")
        os.mkfifo("pipe")
        os.mkdir("closed")
        open("closed/file", "w").write("x")
        try:
            os.chmod("closed/file", 0)
            os.chmod("closed", 0)
        except PermissionError:
            pass
        with open("large", "wb") as file:
            file.truncate(1 << 22)
        for _ in range(1200):
            os.mkdir("deep" * 20)
            os.chdir("deep" * 20)
            open("leaf", "w")
        os.symlink({str(outside)!r}, "link")
        ModelNew = object
        """
    )
    assert tried.failed is None, tried.failed
    folder = Path(tried.log.split()[0])
    assert not folder.exists()
    assert os.listdir(folder.parent) == []
    assert (outside / "kept").read_text() == SECRET


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text(SECRET)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    remove_folder(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept" / "file").read_text() == SECRET


def test_shared_memory_of_the_machine_is_out_of_reach(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("private_shm")
    name = f"flywheel-test-{os.getpid()}"
    Path("/dev/shm", name).write_text(SECRET)
    try:
        text = TRY + "open('/dev/shm/left', 'w')\nprint(json.dumps(os.listdir('/dev/shm')))\n"
        assert read_found(attack(text)) == ["left"]
        assert read_found(attack(text)) == ["left"]
        assert not Path("/dev/shm/left").exists()
    finally:
        Path("/dev/shm", name).unlink()


def test_compilers_work_inside(attack: Attack) -> None:
    tried = attack(
        """
        import ctypes, subprocess
        open("one.c", "w").write("int one(void) { return 41 + 1; }")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "one.c", "-o", "one.so"], check=True)
        assert ctypes.CDLL("./one.so").one() == 42
        ModelNew = object
        """
    )
    assert tried.failed is None, tried.failed


@pytest.mark.slow
def test_a_judge_that_goes_leaves_nothing(tmp_path: Path) -> None:
    script = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from evaluators.memory.tensors import create_sealed_file
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.launcher import Template
fork_server = ForkServer(Template(1))
files = {{"kernel.py": ""}}
setting = {{"device": "cpu", "threads": 1, "flush_bytes": 0}}
limits = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=64, cpu_s=60)
process = fork_server.start(files, setting=setting, limits=limits, inbox=create_sealed_file(64),
                            outbox=create_sealed_file(64))
process.ask("prepare", 120, 120, inbox_bytes=64, outbox_bytes=64)
print(process.pid, flush=True)
time.sleep(600)
"""
    judge = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert judge.stdout is not None
    worker = int(judge.stdout.readline())
    below = [*count_threads_below(judge.pid), worker]
    judge.send_signal(signal.SIGKILL)
    judge.communicate()
    assert all(map(has_ended, below))


SLOW = "time.sleep(0.004); return torch.relu(x @ self.weight)"
LOOP = "import gc, json, socket, sys, time, torch\nloop = sys.modules['evaluators.worker.loop']\n"
HOOKS = {
    "the operation that times": """
real = loop.CandidateLoop.time
def fast(self, *given, **named):
    return {**real(self, *given, **named), "elapsed_ns": 900}
loop.CandidateLoop.time = fast
""",
    "the clock of the loop": """
begin = time.perf_counter_ns()
loop.perf_counter_ns = lambda: begin + (time.perf_counter_ns() - begin) // 500
""",
    "the writer of messages": """
real = json.dumps
def fast(message, *given, **named):
    if "elapsed_ns" in message:
        message["elapsed_ns"] //= 500
    return real(message, *given, **named)
json.dumps = fast
""",
    "the channel": """
real = socket.socket.send
def fast(self, packet, *given):
    if packet[:1] != b"{":  # a turn of a burst
        return real(self, packet, *given)
    message = json.loads(packet)
    if "elapsed_ns" in message:
        message["elapsed_ns"] //= 500
    return real(self, json.dumps(message).encode(), *given)
socket.socket.send = fast
""",
    "the list of what was replaced, and a clock": """
loop.CandidateLoop.clocks = lambda self: {"replaced": []}
begin = time.perf_counter_ns()
loop.perf_counter_ns = lambda: begin + (time.perf_counter_ns() - begin) // 500
""",
    "the loop's own frame": """
frame = sys._getframe()
while "worker" not in frame.f_locals:
    frame = frame.f_back
worker = frame.f_locals["worker"]
real = worker.time
worker.time = lambda *given, **named: {**real(*given, **named), "elapsed_ns": 900}
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if number else [])
        for number, name in enumerate(HOOKS)
    ],
)
def test_a_hook_in_the_loop_makes_no_kernel_fast(
    name: str, judge_code: Callable[..., dict[str, Any]], candidate: Callable[[str], str]
) -> None:
    row = judge_code(LOOP + HOOKS[name] + candidate(SLOW), timing_limit_s=60.0)
    if row["status"] == "correct":  # the hook was of no effect
        kernel = next(arm for arm in row["timings"] if arm["arm"] == "kernel")
        # A call sleeps for 4 ms, and each hook reports some microseconds. What a busy host adds to
        # the cost of passing values is taken off.
        assert min(kernel["samples_ms"]) > 1
    else:
        assert (row["status"], row["reason"]) == ("rejected", "timer_mismatch"), row


LATE = """
def time_(self, slots, variant=None, copies=False, alone=False):
    inputs = [self._slots[slot][0] for slot in slots]
    self._outputs = [torch.empty_like(args[0]) for args in inputs]
    for args, output in zip(inputs, self._outputs):
        threading.Thread(target=work, args=(self._module, args, output)).start()
    return {"places": loop.locate(self._outputs)}
def work(module, inputs, output):
    output.copy_(module(*inputs))
def clocks(self):
    return {"replaced": []}
loop.loop, loop.threading, loop.work = loop, threading, work
"""


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "install",
    [
        "loop.CandidateLoop.time, loop._OPERATIONS['time'] = time_, time_",
        "loop._OPERATIONS['time'].__code__ = time_.__code__\n"
        "loop._OPERATIONS['clocks'].__code__ = clocks.__code__",
    ],
    ids=["replaced", "rewritten in place"],
)
def test_a_loop_that_works_after_it_has_answered_is_found(
    install: str, judge_code: Callable[..., dict[str, Any]], candidate: Callable[[str], str]
) -> None:
    text = "import threading, torch\n" + LOOP + LATE + install + "\n" + candidate(SLOW)
    row = judge_code(text)
    assert row["status"] == "rejected", row
    assert row["reason"] in ("memorised_output", "timer_mismatch"), row


def test_the_loop_holds_nothing_worth_stealing(
    judge_code: Callable[..., dict[str, Any]], right_candidate: str
) -> None:
    search = """
import gc, sys
texts = set()
def look(value):
    if isinstance(value, str): texts.add(value)
    elif isinstance(value, int) and value > 1 << 32: texts.add(str(value))
frame = sys._getframe()
while frame is not None:
    for value in list(frame.f_locals.values()): look(value)
    frame = frame.f_back
for thing in gc.get_objects():
    if isinstance(thing, dict):
        for value in list(thing.values()): look(value)
print("seen:", *[t for t in texts if "get_inputs" in t][:3])
print("numbers:", *[t for t in texts if t.isdigit()])
"""
    row = judge_code(search + right_candidate + "\nraise ValueError('to have its log kept')\n")
    assert "seen:" in row["log"]
    seen = row["log"].partition("seen:")[2].partition("numbers:")
    assert seen[0].strip() == ""
    assert not {str(seed) for seed in row["seeds"]} & set(seen[2].split())


CHANGES = """
import ctypes
fd = tried(lambda: os.open(there, os.O_PATH))
attempts = {
    "chmod": lambda: os.chmod(there, 0o777), "utime": lambda: os.utime(there, (1, 1)),
    "chown": lambda: os.chown(there, os.getuid(), os.getgid()),
    "setxattr": lambda: os.setxattr(there, "user.mark", b"1"),
    "folder": lambda: os.chmod(os.path.dirname(there), 0o777),
    "descriptor": lambda: os.chmod(f"/proc/self/fd/{int(fd[1])}", 0o777),
    "empty path": lambda: called(268, int(fd[1]), b"", 0o777),
}
print(json.dumps({k: tried(f) for k, f in attempts.items()}))
"""


def test_modes_and_times_of_files_outside_stay(
    attack: Attack, tmp_path: Path, require_walls: Callable[..., None]
) -> None:
    require_walls("fixed_modes")
    there = tmp_path / "there"
    there.write_text(SECRET)
    before = [(known.st_mode, known.st_mtime_ns) for known in map(os.stat, (there, tmp_path))]
    answer = read_found(attack(TRY + f"there = {str(there)!r}\n" + CHANGES))
    assert {what for what, _ in answer.values()} == {"refused"}, answer
    assert [(one.st_mode, one.st_mtime_ns) for one in map(os.stat, (there, tmp_path))] == before
    assert os.listxattr(there) == []


def test_a_worker_sees_the_system_and_its_own_folder_alone(
    attack: Attack, tmp_path: Path, require_walls: Callable[..., None]
) -> None:
    require_walls("own_root")
    (tmp_path / "there").write_text(SECRET)
    answer = read_found(
        attack(
            TRY
            + f"""
print(json.dumps({{
    "there": tried(lambda: os.stat({str(tmp_path / "there")!r})),
    "above": tried(lambda: os.stat({str(tmp_path)!r})),
    "passwords": tried(lambda: os.stat("/etc/shadow")),
    "python": tried(lambda: os.stat(os.__file__)),
    "own": tried(lambda: [open("x", "w").close(), os.chmod("x", 0o600), os.utime("x", (1, 1))]),
}}))
"""
        )
    )
    did = {name for name, (what, _) in answer.items() if what == "did"}
    assert did == {"python", "own"}, answer


@pytest.mark.slow
def test_roots_hold_folders_of_workers_alone(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "lake").mkdir()
    (tmp_path / "workers" / "link").symlink_to(tmp_path / "lake")

    def check_refused() -> None:
        isolation.enclose(gpu=False)
        server = mounts.MountServer(["/usr"], [str(tmp_path / "workers")], gpu=False)
        for path in ("lake", "workers/link", "workers/../lake", "workers"):
            with pytest.raises(OSError, match="no folder of a worker"):
                mounts.request_root(server.requests, [str(tmp_path / path)], None)

    def start_rooted() -> None:
        isolation.enclose(gpu=False)
        mounts.MountServer(["/usr"], [str(tmp_path)], gpu=False)

    if not is_possible(start_rooted):
        pytest.skip("no roots can be made here")
    assert find_failure(check_refused) is None


def test_cores_and_priority_of_others_stay(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("seccomp")
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    pids = [other.pid, os.getpid()]

    def state() -> list[Any]:
        return [
            (os.sched_getaffinity(p), os.sched_getscheduler(p), os.getpriority(os.PRIO_PROCESS, p))
            for p in pids
        ]

    before = state()
    try:
        answer = read_found(
            attack(
                TRY
                + f"""
found = {{}}
for pid in {pids!r} + [os.getppid()]:
    found[f"cores {{pid}}"] = tried(lambda: os.sched_setaffinity(pid, [0]))
    found[f"class {{pid}}"] = tried(lambda: os.sched_setscheduler(pid, 5, os.sched_param(0)))
    found[f"priority {{pid}}"] = tried(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
found["all"] = tried(lambda: os.setpriority(os.PRIO_USER, 0, 19))
os.sched_setaffinity(0, os.sched_getaffinity(0))
print(json.dumps(found))
"""
            )
        )
        assert {what for what, _ in answer.values()} == {"refused"}, answer
        assert state() == before
    finally:
        other.kill()
        other.wait()


def test_command_lines_of_others_stay_unread(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("hidden_processes")
    answer = read_found(
        attack(
            TRY
            + f"""
print(json.dumps({{
    str(pid): tried(lambda: open(f"/proc/{{pid}}/cmdline").read()) for pid in {[os.getpid()]!r}
}} | {{"own": tried(lambda: open("/proc/self/maps").read()[:20])}}))
"""
        )
    )
    assert answer.pop("own")[0] == "did"
    assert {what for what, _ in answer.values()} == {"refused"}, answer


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of another architecture")
def test_unknown_and_unneeded_system_calls_have_errors_that_libraries_know(
    attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("seccomp")
    # A newer one, clone3, inotify_init1, shmget, memfd_secret, sync.
    answer = read_found(
        attack(
            TRY + "numbers = [600, 435, 294, 29, 447, 162]\n"
            "found = {str(n): tried(lambda: called(n, 0, 0, 0)) for n in numbers}\n"
            "print(json.dumps(found))\n"
        )
    )
    codes = {number: why.partition("(")[2].partition(",")[0] for number, (_, why) in answer.items()}
    assert codes == {"600": "38", "435": "38", "294": "1", "29": "1", "447": "1", "162": "1"}


MEMORY = {
    "files without a name": """
        import os, time
        held = [os.memfd_create(str(n)) for n in range(8)]
        for fd in held:
            for _ in range(100):
                os.write(fd, bytes(1 << 20))
        time.sleep(600)
    """,
    "pages that children share": """
        import mmap, os, time
        for _ in range(8):
            block = mmap.mmap(-1, 100 << 20)
            block.write(bytes(100 << 20))
            if os.fork() == 0: time.sleep(600)
            block.close()
        time.sleep(600)
    """,
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_that_no_process_has_mapped_counts(
    name: str, attack: Attack, require_walls: Callable[..., None]
) -> None:
    require_walls("memory_group")
    tried = attack(MEMORY[name], replace(LIMITS, memory_bytes=2**29, file_bytes=2**30))
    assert tried.failed is not None
    assert (tried.failed.status, tried.failed.reason) == ("crash", "out_of_memory"), tried.failed
    assert "bytes of memory" in (tried.ended.excess or ""), tried.ended
    assert tried.survivors == []


def test_memory_is_counted_without_a_group() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        fd = os.memfd_create("held")
        for _ in range(64):
            os.write(fd, bytes(1 << 20))
        os.write(writing, str(os.fstat(fd).st_ino).encode())
        signal.pause()
    try:
        inode = int(os.read(reading, 32))
        assert count_held_bytes([pid]) >= 64 << 20
        assert count_held_bytes([pid, pid]) < 2 * count_held_bytes([pid])
        assert count_held_bytes([pid]) - count_held_bytes([pid], {inode}) >= 64 << 20
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_one_signal_to_all_that_are_shut_in_ends_a_tree(tmp_path: Path) -> None:
    if not landlock.scopes_signals():
        pytest.skip("Landlock keeps no signals inside here")

    def wait_for_end() -> None:
        isolation.guard(["landlock"], [str(tmp_path)], gpu=True)
        seccomp.restrict_judge(sockets=True, kills_all=True)
        with pytest.raises(PermissionError):  # else the signal below would reach everybody
            os.kill(os.getppid(), 0)
        child = os.fork()
        if child == 0:
            os.setsid()
            signal.pause()
        os.kill(-1, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL

    assert find_failure(wait_for_end) is None


def describe_walls(fork_server: ForkServer) -> dict[str, dict[str, Any]]:
    return {
        row["what"]: row for row in doctor.describe_walls(fork_server.limits, fork_server.missing)
    }


def test_the_doctor_names_what_is_missing_and_why(fork_server: ForkServer) -> None:
    rows = describe_walls(fork_server)
    assert {name for name, row in rows.items() if row["holds"]} <= set(fork_server.limits)
    assert [name for name, row in rows.items() if not row["holds"]] == doctor.list_missing(
        fork_server.limits
    )
    assert all("not tried" not in row["state"] for row in rows.values())
    [row] = [
        row for row in doctor.describe_walls([], {"cgroup": "EROFS"}) if row["what"] == "cgroup"
    ]
    assert row["state"] == "missing: EROFS"
    assert row["mend"]
    assert row["follows"]
    assert "cgroup" in (doctor.format_warning([]) or "")


@pytest.mark.slow
def test_the_command_prints_walls_and_what_a_judge_uses(
    fork_server: ForkServer, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = describe_walls(fork_server)
    with pytest.raises(SystemExit) as left:
        app(["doctor", "--on", "cpu", "--format", "json"])
    assert left.value.code == 0
    facts = json.loads(capsys.readouterr().out)
    told = {row["what"]: row["holds"] for row in facts}
    assert {name: told[name] for name in rows} == {name: row["holds"] for name, row in rows.items()}
    assert {"C++ compiler", "ninja", "temporary files", "build cache", "memory"} <= set(told)
    clocks = {row["what"]: row for row in facts if row["what"].endswith(" clock")}
    assert set(clocks) == {"throughput clock", "latency clock"}
    for row in clocks.values():
        resolution_us, shortest_us = (float(us) for us in re.findall(r"(\S+) µs", row["state"]))
        assert shortest_us == pytest.approx(5 * resolution_us, rel=0.02)
        assert row["holds"] == (shortest_us < 100) or shortest_us == pytest.approx(100, rel=0.01)
        assert row["holds"] or row["mend"]


@pytest.mark.slow
def test_a_verdict_says_which_walls_were_missing(
    judge_code: Callable[..., dict[str, Any]], right_candidate: str
) -> None:
    row = judge_code(right_candidate)
    assert row["sandbox_missing"] == " ".join(doctor.list_missing(row["sandbox_level"].split()))


def test_what_stands_is_recorded(fork_server: ForkServer) -> None:
    always = {"process", "rlimits", "environment", "no_new_privs", "not_dumpable"}
    assert always <= set(fork_server.limits)
    assert len(fork_server.limits) == len(set(fork_server.limits))


def test_a_wall_that_cannot_be_put_up_is_not_claimed() -> None:
    def fails() -> None:
        raise OSError

    assert not is_possible(fails)
    assert is_possible(lambda: None)
    before = os.umask(0o027)
    assert is_possible(lambda: None if os.umask(0o077) == 0o027 else fails())
    assert os.umask(before) == 0o027  # what is tried changes nothing here


HOSTILE_TASK = """
import json, os, socket
import torch, torch.nn as nn
def tried(f):
    try:
        return "did: " + repr(f())[:60]
    except OSError:
        return "refused"
FOUND = {{
    "lake": tried(lambda: open({lake!r}).read()),
    "over": tried(lambda: open({lake!r}, "w")),
    "home": tried(lambda: os.listdir(os.path.expanduser("~root"))),
    "new": tried(lambda: open({lake!r} + "-new", "w")),
    "build": tried(lambda: open({kept!r} + "/" + 64 * "a" + ".so", "w")),
    "a folder of builds": tried(lambda: os.mkdir({kept!r} + "/" + 64 * "a")),
    "network": tried(lambda: socket.socket(socket.AF_INET)),
    "parent": tried(lambda: open(f"/proc/{{os.getppid()}}/environ").read()),
    "kill": tried(lambda: os.kill(os.getppid(), 0)),
    "token": "refused" if "HF_TOKEN" not in os.environ else "did",
}}
class Model(nn.Module):
    def forward(self, x): raise ValueError(json.dumps(FOUND))
def get_inputs(): return [torch.randn(4)]
def get_init_inputs(): return []
"""


@dataclass(frozen=True)
class SeenJudge:
    """What a judge had started before its end, and what it said of the hostile task."""

    processes: list[int]
    """The judge, and all that it has started."""
    groups: list[Path]
    """Control groups that there are for it."""
    row: dict[str, Any]
    left: dict[str, bool]
    """Whether the hostile task has left something, by where it would be."""


@pytest.fixture(scope="module")
def ended_judge(tmp_path_factory: pytest.TempPathFactory) -> SeenJudge:
    """Return what is known of a judge that has judged the hostile task and has ended."""
    folder = tmp_path_factory.mktemp("judge")
    lake, kept = folder / "lake", folder / "cache" / "builds" / "kept"
    lake.write_text(SECRET)
    names = ("kernel_id", "task_id", "workload_id", "path", "entry_point")
    case = Case(**dict.fromkeys(names, "k.py"))
    before = find_groups()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", SECRET)
        patch.setenv("FLYWHEEL_CACHE", str(folder / "cache"))
        with JudgeProcess("judge", "cpu", Config()) as host:
            assert kept.is_dir()
            # Groups of processes that have just ended are gone already.
            groups = sorted(group for group in find_groups() - before if group.is_dir())
            text = HOSTILE_TASK.format(lake=str(lake), kept=str(kept))
            [row] = host.judge(replace(case, task_code=text))["evaluations"]
            processes = [host.pid, *count_threads_below(host.pid)]
    left = {"lake": lake.read_text() != SECRET, "builds": bool(list(kept.iterdir()))}
    return SeenJudge(processes, groups, row, left)


def find_groups() -> set[Path]:
    """Return the control groups of this process and of all below it; none if none can be made."""
    if not is_possible(cgroup.try_kill):
        return set()
    base = Path("/proc/self/cgroup").read_text().rpartition("0::")[2].strip()
    places = {base}
    for pid in count_threads_below(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            text = Path(f"/proc/{pid}/cgroup").read_text()
            places.add(text.rpartition("0::")[2].strip())
    return {cgroup.find_own_group() / Path(place).relative_to(base) for place in places}


def test_a_judge_ends_with_all_that_it_has_started(ended_judge: SeenJudge) -> None:
    # The judge, and the fork servers of the task, of candidates, and of eager's two processes.
    assert len(ended_judge.processes) >= 5
    assert all(map(has_ended, ended_judge.processes))


def test_the_text_of_a_task_reaches_no_lake(
    require_walls: Callable[..., None], ended_judge: SeenJudge
) -> None:
    require_walls("signal_scope")
    row = ended_judge.row
    assert row["reason"] == "reference_failed", row
    answer = json.loads(row["message"][row["message"].index("{") :])
    assert answer == dict.fromkeys(answer, "refused")
    assert ended_judge.left == {"lake": False, "builds": False}


def test_groups_go_with_the_judge(ended_judge: SeenJudge) -> None:
    if not is_possible(cgroup.try_kill):
        pytest.skip("no control groups can be made here")
    assert ended_judge.groups
    assert not any(folder.exists() for folder in ended_judge.groups)


def test_a_wall_that_is_left_out_is_missing_and_the_others_stand(
    template: Template, fork_server: ForkServer
) -> None:
    with ForkServer(template, {isolation.WITHOUT: "own_root,seccomp"}) as bare:
        bare.wait_ready()
        assert not {"own_root", "seccomp"} & set(bare.limits)
        assert {"own_root", "seccomp"} <= set(bare.missing)
        others = {"landlock", "no_capabilities", "cgroup"} & set(fork_server.limits)
        assert others <= set(bare.limits)
