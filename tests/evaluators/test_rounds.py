"""The judge's clock on a GPU: rounds around calls that are launched behind a gate."""

from __future__ import annotations

import os
import statistics
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.clock.rounds import Round, RoundTime, Unfinished, time_rounds

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


def launch(gate: Gate, stream: torch.cuda.Stream, cycles: int, x: torch.Tensor) -> list[Round]:
    """Launch calls behind the gate, as a worker does; return the judge's rounds around them."""
    load_kernels(x)
    rounds: list[Round] = []
    fresh = [torch.full_like(x, number) for number in range(_CALLS + 1)]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        # The allocator keeps this memory, so that nothing is allocated behind the gate.
        memory = [torch.empty_like(x) for _ in range(2 * _CALLS)]
        del memory
        stream.synchronize()
        for number in range(1, _CALLS + 1):
            gate.wait_for_opening(number)
            if cycles:
                torch.cuda._sleep(cycles)
            output = x + 1
            gate.report(number)
            rounds.append(Round([(x, fresh[number])], [(torch.empty_like(x), output)]))
    return rounds


def load_kernels(x: torch.Tensor) -> None:
    """Launch every kernel once, since the driver waits for the GPU when it loads one."""
    torch.zeros(1, dtype=torch.int32, device="cuda").add_(1)
    torch.empty_like(x).copy_(torch.full_like(x, 1) + 1)
    torch.cuda._sleep(1)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.clock
def test_rounds_take_as_long_as_their_calls_and_see_fresh_inputs(gate: Gate) -> None:
    taken_ms: dict[int, float] = {}
    stream, flushed = torch.cuda.Stream(), torch.zeros(1 << 24, dtype=torch.int32, device="cuda")
    for cycles in (0, _CYCLES):
        gate.give_up(0)
        rounds = launch(gate, stream, cycles, torch.zeros(1 << 20, device="cuda"))
        times: list[RoundTime] = time_rounds(gate, 1, rounds, flushed, 10.0)
        assert all(one.call_ns > 0 and one.rest_ns > 0 for one in times)
        taken_ms[cycles] = statistics.median(one.call_ns for one in times) / 1e6
        answers = [float(ours[0]) for one in rounds for ours, _ in one.outputs]
        assert answers == [number + 1.0 for number in range(1, _CALLS + 1)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    alone_ms = begin.elapsed_time(end)
    assert taken_ms[_CYCLES] - taken_ms[0] == pytest.approx(alone_ms, rel=0.1)


@pytest.mark.gpu
@pytest.mark.clock
def test_a_call_at_the_opening_takes_as_long_as_its_launch_and_its_work(
    gate: Gate, request: pytest.FixtureRequest
) -> None:
    x = torch.zeros(16, device="cuda")
    load_kernels(x)
    taken_ms: dict[int, list[float]] = {0: [], _CYCLES: []}
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # two threads of one process watch the words in turn
    request.addfinalizer(lambda: sys.setswitchinterval(usual_s))
    for number in range(1, 2 * _CALLS + 1):
        cycles = _CYCLES * (number % 2)

        def work(number: int = number, cycles: int = cycles) -> None:
            torch.cuda.synchronize()  # makes the device's context current in this thread
            gate.wait_for_inputs(number)
            gate.wait_in_person(number)
            if cycles:
                torch.cuda._sleep(cycles)
            gate.report(number)
            gate.report_joined(number)

        worker = threading.Thread(target=work)
        worker.start()
        times = gate.time_opening(number, lambda: False)
        worker.join()
        assert times is not None
        taken_ms[cycles].append(times[0] / 1e6)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    least_ms = {cycles: min(taken) for cycles, taken in taken_ms.items()}
    assert least_ms[_CYCLES] - least_ms[0] == pytest.approx(begin.elapsed_time(end), rel=0.1)


@pytest.mark.gpu
def test_no_time_is_told_where_the_worker_never_comes(gate: Gate) -> None:
    assert gate.time_opening(1, lambda: True) is None


@pytest.mark.gpu
def test_a_call_that_never_ends_is_given_up(gate: Gate) -> None:
    x = torch.zeros(16, device="cuda")
    load_kernels(x)
    rounds = [Round([(x, torch.ones_like(x))], [])]
    with pytest.raises(Unfinished):
        time_rounds(gate, 1, rounds, None, 0.2)
