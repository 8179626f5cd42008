"""The judge's clock on a GPU: rounds around calls that are launched behind a gate."""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds
from evaluators.device.timing_conditions import flush_caches

_CYCLES = 2_000_000  # 1 ms at 2 GHz
_CALLS = 8


@pytest.fixture
def gate() -> Iterator[Gate]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    fd = os.memfd_create("gate")
    os.ftruncate(fd, GATE_BYTES)
    opened = Gate(fd)
    yield opened
    torch.cuda.synchronize()
    opened.close()
    os.close(fd)


def launch(
    gate: Gate, first: int, stream: torch.cuda.Stream, cycles: int, x: torch.Tensor
) -> list[Round]:
    """Launch calls behind the gate, as a worker does; return the judge's rounds around them."""
    load_kernels(x)
    rounds: list[Round] = []
    fresh = [torch.full_like(x, number) for number in range(_CALLS)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        # The allocator keeps this memory, so that nothing is allocated behind the gate.
        memory = [torch.empty_like(x) for _ in range(2 * _CALLS)]
        del memory
        stream.synchronize()
        for number in range(_CALLS):
            gate.wait_for_opening(first + number)
            if cycles:
                torch.cuda._sleep(cycles)
            output = x + 1
            gate.report(first + number)
            rounds.append(Round([(x, fresh[number])], [(torch.empty_like(x), output)]))
    return rounds


def load_kernels(x: torch.Tensor) -> None:
    """Launch every kernel once, since the driver waits for the GPU when it loads one."""
    flush_caches(torch.ones(1 << 24, dtype=torch.int32, device="cuda"))
    torch.empty_like(x).copy_(torch.full_like(x, 1) + 1)
    torch.cuda._sleep(1)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.clock
def test_rounds_take_as_long_as_their_calls_and_see_fresh_inputs(gate: Gate) -> None:
    taken_ms: dict[int, float] = {}
    stream, flushed = torch.cuda.Stream(), torch.ones(1 << 24, dtype=torch.int32, device="cuda")
    for first, cycles in ((1, 0), (1 + _CALLS, _CYCLES)):
        rounds = launch(gate, first, stream, cycles, torch.zeros(1 << 20, device="cuda"))
        times: list[RoundTime] = time_rounds(gate, first, rounds, flushed, 10.0)
        assert all(one.call_ns > 0 and one.rest_ns > 0 for one in times)
        taken_ms[cycles] = statistics.median(one.call_ns for one in times) / 1e6
        answers = [float(ours[0]) for one in rounds for ours, _ in one.outputs]
        assert answers == [number + 1.0 for number in range(_CALLS)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    alone_ms = begin.elapsed_time(end)
    assert taken_ms[_CYCLES] - taken_ms[0] == pytest.approx(alone_ms, rel=0.1)


@pytest.mark.gpu
@pytest.mark.clock
def test_each_call_waits_for_the_report_of_the_one_before(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    x = torch.zeros(16, device="cuda")
    load_kernels(x)
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # two threads of one process watch the words in turn
    request.addfinalizer(lambda: sys.setswitchinterval(usual_s))
    begun_ns: list[int] = []

    def work() -> None:
        torch.cuda.synchronize()  # makes the device's context current in this thread
        for number in range(1, _CALLS + 1):
            gate.wait_in_person(number)
            begun_ns.append(time.perf_counter_ns())
            torch.cuda._sleep(_CYCLES)
            gate.report(number)
        gate.report_joined(_CALLS)

    gate.open_now(1)
    worker = threading.Thread(target=work)
    worker.start()
    done_ns = gate.follow_calls(1, _CALLS, lambda: False)
    worker.join()
    assert done_ns is not None
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    gaps_ms = [(b - a) / 1e6 for a, b in itertools.pairwise([*begun_ns, done_ns])]
    assert min(gaps_ms) > 0.9 * begin.elapsed_time(end)


@pytest.mark.gpu
def test_no_end_is_told_where_the_worker_never_comes(gate: Gate) -> None:
    assert gate.follow_calls(1, 2, lambda: True) is None


@pytest.mark.gpu
def test_a_call_that_never_ends_is_given_up(gate: Gate) -> None:
    x = torch.zeros(16, device="cuda")
    load_kernels(x)
    rounds = [Round([(x, torch.ones_like(x))], [])]
    with pytest.raises(Unfinished):
        time_rounds(gate, 1, rounds, None, 0.2)
