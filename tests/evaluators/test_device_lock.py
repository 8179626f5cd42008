"""Judges of one machine: a timed section has its device for itself."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaluators.device.lock import DeviceLock
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.calls import CorrectnessProtocol, draw_probe
from evaluators.judging.case import Case
from evaluators.judging.case_result import CaseResult
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.sandbox.launcher import Limits
from evaluators.scheduling.judges import process
from evaluators.worker.handle import Deadlines, Sizes

HOLDER = """
import sys
from evaluators.device.lock import DeviceLock
lock = DeviceLock.of(sys.argv[2:])
with getattr(lock, "hold_" + sys.argv[1])():
    print("held", flush=True)
    sys.stdin.read()
"""
A_MOMENT_S = 0.3
"""How long it is looked that nothing happens; however busy the machine, it must not."""
LONGEST_S = 0.25
"""How long a share lasts, at most."""


class Holder:
    """A process that asks for a lock, and lets go of it when told."""

    def __init__(self, how: str, *names: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, how, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.lock = Path(os.environ["FLYWHEEL_LOCKS"]) / f"{names[0]}.lock"

    def has_it(self, within_s: float) -> bool:
        return bool(select.select([self.output], [], [], within_s)[0])

    def let_go(self) -> None:
        self.process.communicate()


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the locks of this machine out of it."""
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(tmp_path / "flywheel-locks"))


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("first", "then"), [("shared", "exclusive"), ("exclusive", "shared")])
def test_who_times_waits_for_all_others_and_they_for_it(first: str, then: str) -> None:
    holder = Holder(first, "gpu-a")
    assert holder.has_it(120)
    waiting = Holder(then, "gpu-a")
    assert not waiting.has_it(A_MOMENT_S)
    holder.let_go()
    assert waiting.has_it(120)
    waiting.let_go()


def test_who_shares_waits_for_nobody_who_shares_and_not_for_other_devices() -> None:
    holders = [
        Holder("shared", "gpu-a"),
        Holder("shared", "gpu-a"),
        Holder("exclusive", "gpu-b", "cpu-0"),
        Holder("exclusive", "cpu-1"),
    ]
    assert all(holder.has_it(120) for holder in holders)
    for holder in holders:
        holder.let_go()


def wait_until_it_waits(pid: int, lock: Path) -> None:
    stop, inode = time.monotonic() + 120, f":{lock.stat().st_ino} "
    while time.monotonic() < stop:
        for line in Path("/proc/locks").read_text().splitlines():
            if "->" in line and f" {pid} " in line and inode in line:
                return
        time.sleep(0.01)
    raise AssertionError("it does not wait")


def let_go_once_waited_for(holder: Holder, lock: Path, after_s: float) -> None:
    """Let go, in a thread, some time after this process has begun to wait."""

    def let_go() -> None:
        wait_until_it_waits(os.getpid(), lock)
        time.sleep(after_s)
        holder.let_go()

    threading.Thread(target=let_go).start()


def test_who_times_is_not_passed_by_those_who_share(tmp_path: Path) -> None:
    turnstile, lock = (tmp_path / "flywheel-locks" / f"gpu-a.{end}" for end in ("turn", "lock"))
    sharing = Holder("shared", "gpu-a")
    assert sharing.has_it(120)
    timing = Holder("exclusive", "gpu-a")
    wait_until_it_waits(timing.process.pid, lock)
    late = Holder("shared", "gpu-a")
    wait_until_it_waits(late.process.pid, turnstile)
    # Those that time take turns before those that share have the device again.
    second = Holder("exclusive", "gpu-a")
    wait_until_it_waits(second.process.pid, lock)
    sharing.let_go()
    # In any order: one that a busy host has stopped waits anew.
    [output, *_] = select.select([timing.output, second.output], [], [], 120)[0]
    first, other = (timing, second) if output is timing.output else (second, timing)
    assert not other.has_it(A_MOMENT_S)
    first.let_go()
    assert other.has_it(120)
    assert not late.has_it(A_MOMENT_S)
    other.let_go()
    assert late.has_it(120)
    late.let_go()


def test_a_holder_that_is_killed_lets_go() -> None:
    holder = Holder("exclusive", "gpu-a")
    assert holder.has_it(120)
    holder.process.kill()
    waiting = Holder("exclusive", "gpu-a")
    assert waiting.has_it(120)
    waiting.let_go()
    holder.let_go()


def test_a_lock_that_is_a_link_or_a_pipe_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "flywheel-locks"
    folder.mkdir()
    target = tmp_path / "target"
    (folder / "gpu-a.turn").symlink_to(target)
    os.mkfifo(folder / "gpu-b.turn")
    assert DeviceLock.of(["gpu-a", "gpu-b"]).fds == []
    assert not target.exists()
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("no lock on gpu-a, gpu-b")


def test_the_folder_of_the_locks_is_no_link_and_the_same_for_every_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_link, elsewhere = tmp_path / "link", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with_link.symlink_to(elsewhere)
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(with_link))
    assert DeviceLock.of(["gpu-a"]).fds == []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for folder in (str(elsewhere), "/tmp/flywheel-locks"):
        if folder == str(elsewhere):
            monkeypatch.setenv("FLYWHEEL_LOCKS", folder)
        else:
            monkeypatch.delenv("FLYWHEEL_LOCKS")
        lock = DeviceLock.of_device("cpu", [0])
        opened = [os.readlink(f"/proc/self/fd/{fd}") for pair in lock.fds for fd in pair]
        assert opened == [f"{folder}/cpu-0.turn", f"{folder}/cpu-0.lock"]
        lock.close()


def wait_until_wanted(lock: DeviceLock, by: Holder) -> None:
    # A look at the turnstile takes it for a moment, and makes the device seem wanted.
    wait_until_it_waits(by.process.pid, by.lock)
    stop = time.monotonic() + 120
    while not lock.is_wanted():
        assert time.monotonic() < stop, "nobody waits"
        time.sleep(0.01)


def test_who_shares_lets_one_that_waits_have_the_device() -> None:
    lock = DeviceLock.of(["gpu-a", "gpu-b"])
    with lock.hold_shared():
        assert not lock.is_wanted()
        timing = Holder("exclusive", "gpu-b")
        wait_until_wanted(lock, timing)
        assert not timing.has_it(0)
        aside = threading.Thread(target=lock.step_aside)
        aside.start()
        assert timing.has_it(120)
        aside.join(A_MOMENT_S)
        assert aside.is_alive()
        timing.let_go()
        aside.join(120)
        assert not aside.is_alive()
        later = Holder("exclusive", "gpu-a")
        assert not later.has_it(A_MOMENT_S)
    assert later.has_it(120)
    later.let_go()
    lock.close()


def test_a_device_is_held_until_the_first_of_nested_shares_ends() -> None:
    lock = DeviceLock.of(["gpu-a"])
    with lock.hold_shared() as outer:
        with lock.hold_shared() as inner:
            timing = Holder("exclusive", "gpu-a")
            wait_until_wanted(lock, timing)
            threading.Timer(A_MOMENT_S, timing.let_go).start()
            aside_s = lock.step_aside()
        assert outer.aside_s == inner.aside_s == aside_s > 0
        with pytest.raises(AssertionError), lock.hold_exclusive():
            pass
        later = Holder("exclusive", "gpu-a")
        assert not later.has_it(A_MOMENT_S)
    assert later.has_it(120)
    later.let_go()
    lock.close()


def test_who_has_the_device_alone_is_not_asked_for_it() -> None:
    lock = DeviceLock.of(["gpu-a"])
    with lock.hold_exclusive():
        waiting = Holder("exclusive", "gpu-a")
        assert not waiting.has_it(A_MOMENT_S)
        assert not lock.is_wanted()
    assert waiting.has_it(120)
    waiting.let_go()
    lock.close()


@pytest.mark.slow
def test_a_share_that_was_waited_for_lasts_before_it_is_wanted_again(tmp_path: Path) -> None:
    holder = Holder("exclusive", "gpu-a")
    assert holder.has_it(120)
    lock, file = DeviceLock.of(["gpu-a"]), tmp_path / "flywheel-locks" / "gpu-a.lock"
    let_go_once_waited_for(holder, file, 1.2)
    begin = time.monotonic()
    with lock.hold_shared() as hold:
        waited_s = hold.waited_s
        for _ in range(2):
            assert waited_s > LONGEST_S
            holder = Holder("exclusive", "gpu-a")
            wait_until_wanted(lock, holder)
            assert time.monotonic() > begin + waited_s + LONGEST_S
            let_go_once_waited_for(holder, file, 1.2)
            begin = time.monotonic()
            waited_s = lock.step_aside()
    lock.close()


def wait_until_noticed(caplog: pytest.LogCaptureFixture) -> None:
    until = time.monotonic() + 300
    while not caplog.messages:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_a_judge_may_wait_for_its_device_longer_than_a_start_or_a_case_takes(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    right_candidate: str,
    task: str,
) -> None:
    passed_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(passed_s), sleep=time.sleep)
    monkeypatch.setattr(process, "time", clock)
    monkeypatch.setattr(process, "_STARTS", 1)
    monkeypatch.setattr(process, "_NOTICE_S", A_MOMENT_S)
    held = DeviceLock.of_device("cpu")
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=right_candidate, task_code=task)
    judging = process.JudgeProcess("judge", "cpu", Config(total_s=1, timing_s=0.05))
    with ThreadPoolExecutor(1) as threads:
        for act in (judging.wait_ready, lambda: judging.judge(case)):
            with held.hold_exclusive():
                acting = threads.submit(act)
                wait_until_noticed(caplog)
                passed_s.append(10_000.0)
                time.sleep(A_MOMENT_S)
                assert not acting.done()
            acting.result()
            caplog.clear()
            judging._told_to_wait = False  # which it says once
    judging.close()
    held.close()


@pytest.mark.slow
def test_an_audit_waits_while_another_judge_times(task: str) -> None:
    held = DeviceLock.of_device("cpu")
    described = {
        "task_id": "t", "workload_id": "w", "task_code": task, "axes": "{}", "free_bytes": 1 << 33,
    }  # fmt: skip
    with process.JudgeProcess(None, "cpu") as auditor, ThreadPoolExecutor(1) as threads:
        with held.hold_exclusive():
            auditing = threads.submit(auditor.audit, described, 60)
            time.sleep(5 * A_MOMENT_S)
            assert not auditing.done()
        row, why = auditing.result()
    assert (row is None, why) == (False, "")
    held.close()


@pytest.mark.slow
def test_a_command_says_that_its_judge_waits_for_its_device(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_NOTICE_S", A_MOMENT_S)
    held = DeviceLock.of_device("cpu")
    judging = process.JudgeProcess("judge", "cpu", Config(timing_s=0.05))
    with ThreadPoolExecutor(1) as threads:
        with held.hold_exclusive():
            starting = threads.submit(judging.wait_ready)
            wait_until_noticed(caplog)
            assert not starting.done()
        starting.result()
    assert caplog.messages == ["waiting for cpu: another judge or a training uses it"]
    judging.close()
    held.close()


STARTER = """
from evaluators.device.placement import divide_machine
from evaluators.judge import Config
from evaluators.scheduling.judges.process import start_judges
print("begins", flush=True)
with start_judges("judge", divide_machine("cpu").places, Config()) as [judge]:
    judge.wait_ready()
"""


def test_an_interrupt_ends_a_command_whose_judges_wait_for_their_device() -> None:
    held = DeviceLock.of_device("cpu")
    with held.hold_exclusive():
        starting = subprocess.Popen(
            [sys.executable, "-c", STARTER], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert starting.stdout is not None
        assert starting.stdout.readline() == b"begins\n"
        time.sleep(A_MOMENT_S)
        starting.send_signal(signal.SIGINT)
        _, told = starting.communicate(timeout=120)
    assert told.endswith(b"KeyboardInterrupt\n")
    held.close()


STOPS, HELD_S, LIMIT_S = 6, 4.0, 20.0
"""How often and how long another judge has the device, and a limit. A candidate runs a moment after
each stop, so it exceeds the limit only with the time in which it is frozen."""
COMPILE = f"""
import time
stops = 0
while stops < {STOPS}:
    begin = time.monotonic()
    time.sleep(0.01)
    stops += time.monotonic() - begin > {HELD_S / 2}
"""
"""Takes until the process has been stopped some times."""
IN_A_CALL = f"""
if not hasattr(self, "built"):
    self.built = True
    {textwrap.indent(COMPILE, "    ").strip()}
return torch.relu(x @ self.weight)
"""
OTHER_JUDGE = """
import select
import sys
import time
from evaluators.device.lock import DeviceLock
lock = DeviceLock.of(["gpu-a"])
while not select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
    with lock.hold_exclusive():
        time.sleep(float(sys.argv[2]))
"""


def judge_beside_another(
    code: str, task: str, pause_s: float, held_s: float, **options: Any
) -> dict[str, Any]:
    """Judge a kernel while another judge takes the device again and again; return its row."""
    config = Config(
        timing_s=0.05,
        timing_limit_s=0.3,
        robustness=False,
        diagnosis=False,
        draw_shapes=0,
        **options,
    )
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task, axes="{}")
    line = [sys.executable, "-c", OTHER_JUDGE, str(pause_s), str(held_s)]
    with (
        subprocess.Popen(line, stdin=subprocess.PIPE),
        Bench("cpu", lock=DeviceLock.of(["gpu-a"])) as bench,
    ):
        tables = judge(case, bench, config)
    [row] = tables["evaluations"]
    return {**row, "parts_s": json.loads(row["parts_s"]), "timings": tables["timings"]}


@pytest.mark.slow
def test_a_candidate_that_compiles_in_a_call_is_frozen_while_another_judge_times(
    candidate: Callable[[str], str], task: str
) -> None:
    # The candidate is frozen for longer than its limit; frozen time does not count.
    row = judge_beside_another(candidate(IN_A_CALL), task, 0.05, HELD_S, first_call_s=LIMIT_S)
    assert (row["status"], row["message"]) == ("correct", None)
    assert row["parts_s"]["waiting"] > STOPS * HELD_S / 2


@pytest.mark.slow
def test_another_judge_times_between_two_calls_of_a_candidate(
    right_candidate: str, task: str
) -> None:
    with Bench("cpu", lock=DeviceLock.of(["gpu-a"])) as bench, bench.lock.hold_shared():
        reference = bench.open_reference(task, {})
        question = draw_probe(reference, CaseResult())
        sizes = Sizes.of(question.inputs, question.expected.value)
        limits = Limits(memory_bytes=8 << 30, file_bytes=1 << 24, open_files=256, cpu_s=600)
        deadlines = Deadlines(import_s=60, build_s=60, first_call_s=60, call_s=60, total_s=600)
        worker = bench.start_candidate({"kernel.py": right_candidate}, sizes, limits, deadlines)
        worker.load("kernel.py", "ModelNew", {})
        worker.construct(WEIGHT_SEED, reference.arguments)
        candidate = CorrectnessProtocol(worker, reference, CaseResult(), "torch_default")
        timing = Holder("exclusive", "gpu-a")
        wait_until_wanted(bench.lock, timing)
        assert not timing.has_it(0)
        begin, began = time.perf_counter(), candidate.read_clock()
        calling = threading.Thread(target=candidate.call, args=(0, question))
        calling.start()
        assert timing.has_it(120)
        calling.join(A_MOMENT_S)
        assert calling.is_alive()
        timing.let_go()
        calling.join(120)
        assert not calling.is_alive()
        passed_s, counted_s = time.perf_counter() - begin, candidate.read_clock() - began
        assert counted_s <= passed_s - A_MOMENT_S
        worker.end()


@pytest.mark.slow
def test_a_candidate_that_compiles_in_its_file_is_frozen_while_another_judge_times(
    right_candidate: str, task: str
) -> None:
    row = judge_beside_another(COMPILE + right_candidate, task, 0.05, HELD_S, import_s=LIMIT_S)
    assert (row["status"], row["message"]) == ("correct", None)
    # The part leaves out the time in which the candidate is frozen; it includes taking the device.
    assert row["build_s"] <= row["parts_s"]["build"] + 1e-3
    assert row["parts_s"]["waiting"] > STOPS * HELD_S / 2


@pytest.mark.slow
def test_a_baseline_that_compiles_is_frozen_while_another_judge_times(
    right_candidate: str, task: str
) -> None:
    row = judge_beside_another(right_candidate, task, 0.5, 0.4, baselines=("eager", "compile"))
    assert {one["arm"] for one in row["timings"]} >= {"kernel", "eager", "compile"}
    # A compiler takes much longer than the other judge waits to have the device again.
    assert row["parts_s"]["waiting"] > row["parts_s"]["baselines"] / 4


INHERITOR = """
import sys
from evaluators.device.lock import DeviceLock
fds = [int(fd) for fd in sys.argv[1:]]
with DeviceLock([(fds[0], fds[1])]).hold_exclusive():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_of_a_judge_that_was_killed_is_released_by_the_process_that_started_it() -> None:
    lock = DeviceLock.of(["gpu-a"])
    [fds] = lock.fds
    judge = subprocess.Popen(
        [sys.executable, "-c", INHERITOR, *map(str, fds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=fds,
    )
    assert judge.stdout is not None
    assert judge.stdout.readline() == b"held\n"
    judge.kill()
    judge.communicate()
    waiting = Holder("exclusive", "gpu-a")
    assert not waiting.has_it(A_MOMENT_S)
    lock.close()
    assert waiting.has_it(120)
    waiting.let_go()


def test_waiting_for_other_judges_is_a_part_of_its_own(tmp_path: Path) -> None:
    holder = Holder("shared", "gpu-a")
    assert holder.has_it(120)
    lock, outcome = DeviceLock.of(["gpu-a"]), CaseResult()
    let_go_once_waited_for(holder, tmp_path / "flywheel-locks" / "gpu-a.lock", A_MOMENT_S)
    with outcome.time_part("timing", lock.hold_exclusive()) as held:
        pass
    with outcome.time_part("timing"):
        pass
    lock.close()
    assert held.waited_s > 0
    assert outcome.parts_s["waiting"] == pytest.approx(held.waited_s, abs=1e-3)
    assert outcome.parts_s["timing"] < held.waited_s
