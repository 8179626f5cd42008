"""Bursts of timed calls on a processor: whatever a candidate does in one counts as its time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evaluators.judging.bench import Bench
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import Limits
from evaluators.timing.measurement import warm_up
from evaluators.timing.session import EAGER_CONTROL, EMPTY, EMPTY_KERNEL, Plan, SessionArm
from evaluators.worker.handle import Deadlines, Sample, Sizes, WorkerHandle

Start = Callable[[str], WorkerHandle]

CALLS = 8
SLOTS = list(range(1, CALLS + 1))
"""The first slot is for untimed calls."""
WORK_S = 0.01
KERNEL = """
import os, sys, threading, time
import torch
from torch import nn

loop = sys.modules["evaluators.worker.loop"]
messages = loop.messages
await_turn = messages.await_turn


def work(calls=1):
    end = time.perf_counter() + calls * WORK_S
    while time.perf_counter() < end:
        pass


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))
        self.calls = 0

    def answer(self, x):
        return torch.relu(x @ self.weight)

    def forward(self, x):
        self.calls += 1
"""
ELSEWHERE = {
    "before a report": """
        return self.answer(x)

def report(end):
    work()
    await_turn(end)

messages.await_turn = report
""",
    "while the judge opens the next call": """
        return self.answer(x)

def report(end):
    end.send(b".")
    work()
    end.recv(1)

messages.await_turn = report
""",
    "in the first call": """
        if self.calls % CALLS == 1:
            work(CALLS)
        return self.answer(x)
""",
    "in the last call": """
        if self.calls % CALLS == 0:
            work(CALLS)
        return self.answer(x)
""",
    "after reports of all calls": """
        if self.calls % CALLS == 0:
            work(CALLS)
        return self.answer(x)

def report(end):
    end.send(b".")  # its turn is taken from what the judge has sent by then, after the calls

messages.await_turn = report
send = messages.send

def send_after_turns(end, message, *rest):
    if "places" in message:
        for _ in range(CALLS - 1):
            end.recv(1)
    send(end, message, *rest)

messages.send = send_after_turns
""",
}
"""Each does the work of every call somewhere else than in the call."""


@pytest.fixture
def start(bench: Bench, references: Any, task: str) -> Iterator[Start]:
    """Return a function that starts the worker of a candidate, with inputs in its slots."""
    workers: list[WorkerHandle] = []

    def start_worker(code: str) -> WorkerHandle:
        reference = references(task)
        sets = reference.input_sets(range(CALLS + 1))
        sizes = Sizes.of(sets[0], sets[0])
        limits = Limits(memory_bytes=8 << 30, file_bytes=1 << 24, open_files=256, cpu_s=600)
        deadlines = Deadlines(import_s=120, build_s=600, first_call_s=120, call_s=120, total_s=600)
        code = code.replace("CALLS", str(CALLS)).replace("WORK_S", str(WORK_S))
        worker = bench.start_candidate({"kernel.py": code}, sizes, limits, deadlines)
        workers.append(worker)
        worker.load("kernel.py", "ModelNew", {})
        worker.construct(WEIGHT_SEED, reference.arguments)
        for slot, inputs in enumerate(sets):
            worker.fill(slot, inputs)
        return worker

    yield start_worker
    for worker in workers:
        worker.end()


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("place", ELSEWHERE)
def test_work_counts_in_whichever_part_of_a_burst_it_is(start: Start, place: str) -> None:
    worker = start(KERNEL + ELSEWHERE[place])
    # As many calls as reports: work beside the last call would follow its report, which ends all.
    works = CALLS - 1 if "report" in ELSEWHERE[place] and "work()" in ELSEWHERE[place] else CALLS
    assert worker.time(SLOTS, cold=True).elapsed_ns > works * WORK_S * 1e9


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("cold", [False, True])
def test_untimed_calls_take_no_time_of_a_burst_and_see_none_of_its_inputs(
    start: Start, cold: bool
) -> None:
    seen = """
        values = [args[0].abs().sum().item() for args, _ in WORKER[0]._slots.values()]
        self.register_buffer(f"seen{self.calls}", torch.tensor(values))
        return self.answer(x)

import gc
WORKER = [one for one in gc.get_objects() if type(one).__name__ == "CandidateLoop"]
"""
    worker = start(KERNEL + seen)
    worker.time([0] * 4)
    worker.time(SLOTS, cold=cold)
    names = {f"seen{call}": torch.zeros(CALLS + 1) for call in range(1, CALLS + 5)}
    state = worker.current_state(names)
    for call in range(1, CALLS + 5):
        has_inputs = (state[f"seen{call}"] != 0).tolist()
        is_untimed = call <= 4
        assert has_inputs == [is_untimed] + [not is_untimed] * CALLS, call


def test_a_call_alone_that_fails_says_why(start: Start) -> None:
    worker = start(KERNEL + "        assert self.calls < 3, 'no third'\n        return x\n")
    with pytest.raises(Failed, match="no third") as failed:
        worker.time(SLOTS, cold=True)
    assert (failed.value.status, failed.value.reason) == ("crash", "exception")


def test_a_worker_that_ends_among_its_calls_has_crashed(start: Start) -> None:
    worker = start(KERNEL + "        os._exit(3) if self.calls == 3 else None\n        return x\n")
    with pytest.raises(Failed) as failed:
        worker.time(SLOTS, cold=True)
    assert failed.value.status == "crash"


def test_answers_are_those_of_the_moment_when_the_clock_stops(start: Start) -> None:
    late = """
        out = torch.zeros_like(x)
        OWED.append((self, x, out))
        return out

OWED = []
receive = messages.receive

def work_later(end):
    request = receive(end)
    while OWED:
        module, x, out = OWED.pop()
        out.copy_(module.answer(x))
    return request

messages.receive = work_later
"""
    worker = start(KERNEL + late)
    worker.call(0)
    for cold in (False, True):
        worker.time(SLOTS, cold=cold)
        worker.capture_outputs([0, CALLS - 1])
        outputs = worker.timed_outputs([0, CALLS - 1])
        assert all(is_captured for _, is_captured in outputs)
        assert not any(output.any() for output, _ in outputs[1:])


class Paced:
    """A worker whose calls take longer from some call on, as when a host becomes busy."""

    device = "cpu"

    def __init__(self, first_ms: float, later_ms: float, samples: int) -> None:
        self._times = itertools.chain(
            itertools.repeat(first_ms, samples), itertools.repeat(later_ms)
        )

    def take(self, slots: list[int], **_: bool) -> Sample:
        return Sample(round(next(self._times) * len(slots) * 1e6), slots)

    def outputs_overlap(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("first_ms", "later_ms"), [(0.1, 0.1), (0.1, 1.0), (0.5, 0.45), (1.0, 0.1)]
)
def test_a_sample_has_as_many_calls_as_its_time_is_divided_by(
    first_ms: float, later_ms: float
) -> None:
    names = ("kernel", "eager", EAGER_CONTROL, EMPTY, EMPTY_KERNEL)
    arms: dict[str, SessionArm] = {}
    for name in names:
        is_empty = name in (EMPTY, EMPTY_KERNEL)
        worker: Any = Paced(0.0, 0.0, 0) if is_empty else Paced(first_ms, later_ms, 3)
        arms[name] = SessionArm(worker, worker.take, 1)
    pool: Any = SimpleNamespace(device="cpu", calls=1, count_affordable=lambda: 256)
    pool.refill = lambda: list(range(pool.calls + 1))
    checks: Any = SimpleNamespace(check=lambda _: None)
    plan = Plan(half_width=0.01, budget_s=1.0, limit_s=1.0, sample_ms=5.0)
    pool.stage = lambda _: None
    how: Any = {"cold": False, "in_burst": True, "similar": None, "knows_overwritten": False}
    warm = warm_up(arms, pool, checks, plan, **how)
    slots = pool.refill()
    taken = {name: len(arm.time(slots).kept) for name, arm in arms.items()}
    assert taken == warm.loops
