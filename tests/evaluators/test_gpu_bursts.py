"""Bursts of timed calls on a GPU: whatever a candidate does in one counts as its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from evaluators.clock.rounds import EmptyRounds
from evaluators.judging.bench import Bench
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.sandbox.launcher import Limits
from evaluators.worker.handle import Deadlines, Sample, Sizes, WorkerHandle

Start = Callable[[str], WorkerHandle]

CALLS = 8
SLOTS = list(range(1, CALLS + 1))
"""The first slot is for untimed calls."""
WORK_S = 0.005
KERNEL = """
import gc, threading, time
import torch
from torch import nn
from evaluators.clock.gate import Gate
from evaluators.worker.loop import Streams

WORKER = [one for one in gc.get_objects() if type(one).__name__ == "CandidateLoop"]
SIDE = torch.cuda.Stream()


def work(calls=1):
    torch.cuda._sleep(int(calls * WORK_S * 2e9))


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
HONEST = """
        return self.answer(x)
"""
ELSEWHERE = {
    "in its calls": """
        work()
        return self.answer(x)
""",
    "in the first call, for all": """
        if self.calls % CALLS == 1:
            work(CALLS)
        return self.answer(x)
""",
    "in the last call, for all": """
        if self.calls % CALLS == 0:
            work(CALLS)
        return self.answer(x)
""",
    "in the gaps between rounds": """
        return self.answer(x)

wait_in_person = Gate.wait_in_person

def wait(gate, number):
    work()
    wait_in_person(gate, number)

Gate.wait_in_person = wait
""",
    "on a stream of its own": """
        with torch.cuda.stream(SIDE):
            work()
        return self.answer(x)
""",
    "after reports of all calls": """
        work()
        return self.answer(x)

wait_in_person = Gate.wait_in_person

def wait(gate, number):
    wait_in_person(gate, number)
    for later in range(number, number + CALLS):
        gate.report(later)

Gate.wait_in_person = wait
""",
    "once the end is reported": """
        return self.answer(x)

report_joined = Gate.report_joined

def report(gate, number):
    report_joined(gate, number)
    torch.cuda.synchronize()
    work(CALLS)
    torch.cuda.synchronize()

Gate.report_joined = report
""",
}
"""Each does the work of every call somewhere."""


@pytest.fixture
def start(gpu_bench: Bench, task: str) -> Iterator[Start]:
    """Return a function that starts the worker of a candidate, with inputs in its slots."""
    workers: list[WorkerHandle] = []

    def start_worker(code: str) -> WorkerHandle:
        gpu_bench.set_precision("torch_default")
        reference = gpu_bench.open_reference(task, {})
        sets = reference.input_sets(range(CALLS + 1))
        sizes = Sizes.of(sets[0], sets[0])
        limits = Limits(memory_bytes=None, file_bytes=1 << 24, open_files=1024, cpu_s=600)
        deadlines = Deadlines(import_s=60, build_s=60, first_call_s=60, call_s=20, total_s=300)
        code = code.replace("CALLS", str(CALLS)).replace("WORK_S", str(WORK_S))
        worker = gpu_bench.start_candidate({"kernel.py": code}, sizes, limits, deadlines)
        workers.append(worker)
        worker.load("kernel.py", "ModelNew", {})
        worker.construct(WEIGHT_SEED, reference.arguments)
        for slot, inputs in enumerate(sets):
            worker.fill(slot, inputs)
        for _ in range(CALLS):
            worker.call(0, first=True)
        return worker

    yield start_worker
    for worker in workers:
        worker.end()


def take(worker: WorkerHandle, *, cold: bool) -> Sample:
    """Time one burst."""
    return worker.time(SLOTS, cold=cold, manner="in_burst")


@pytest.mark.gpu
@pytest.mark.parametrize("place", ELSEWHERE)
def test_work_counts_in_whichever_part_of_a_burst_it_is(start: Start, place: str) -> None:
    honest = start(KERNEL + HONEST)
    empty = EmptyRounds()
    for _ in range(8):
        empty.add(take(honest, cold=True).rounds)
    honest.end()
    worker = start(KERNEL + ELSEWHERE[place])
    take(worker, cold=True)
    sample = take(worker, cold=True)
    # `torch.cuda._sleep` counts cycles of a clock that may be lower than 2 GHz, not higher.
    assert empty.elapsed_ns(sample.rounds) > 0.9 * CALLS * WORK_S * 1e9


@pytest.mark.gpu
@pytest.mark.parametrize("cold", [False, True])
def test_untimed_calls_see_no_inputs_of_a_burst(start: Start, cold: bool) -> None:
    seen = """
        values = [args[0].abs().sum().item() for args, _ in WORKER[0]._slots.values()]
        self.register_buffer(f"seen{self.calls}", torch.tensor(values))
        return self.answer(x)
"""
    worker = start(KERNEL + seen)
    worker.time([0] * 4, manner="in_burst")
    take(worker, cold=cold)
    calls = range(CALLS + 1, 2 * CALLS + 5)  # each has seen the inputs of every slot
    state = worker.current_state({f"seen{call}": torch.zeros(CALLS + 1) for call in calls})
    has_inputs = [values[1:].ne(0).tolist() for values in state.values()]
    assert has_inputs == [*[[False] * CALLS] * 4, *[[True] * CALLS] * CALLS]


@pytest.mark.gpu
def test_answers_are_those_of_the_moment_when_the_worker_is_frozen(start: Start) -> None:
    late = """
        out = torch.zeros_like(x)
        OWED.append((self, x, out))
        return out

import sys
messages = sys.modules["evaluators.worker.loop"].messages
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
    for cold in (False, True):
        take(worker, cold=cold)
        worker.capture_outputs([1, CALLS - 1])
        outputs = worker.timed_outputs([1, CALLS - 1])
        assert all(is_captured for _, is_captured in outputs)
        assert not any(output.any() for output, _ in outputs)
