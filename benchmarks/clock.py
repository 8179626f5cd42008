"""Overhead and accuracy of the judge's clock: an empty candidate, short and long kernels, A/A wins.

    python benchmarks/clock.py [--device cpu|cuda] [--sessions N] [--load PROCESSES]
    python benchmarks/clock.py --calibrate

Prints the overhead of passing inputs and answers (an empty candidate), the relative error for
kernels that wait for known times, and how many sessions of eager against eager are judged `faster`
while `--load` other processes are busy. On a GPU, CUDA events around several such kernels in this
process measure the known time.

With `--calibrate`, it compares the clock `gpu` with CUDA events of the worker (`clock_worker.py`,
which needs Triton) around the same calls, for kernels that do nothing and elementwise kernels of 64
to 16,384 blocks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.clock.gate import GATE_BYTES, Gate
from evaluators.clock.rounds import Round, time_rounds
from evaluators.device.timing_conditions import compute_flush_bytes, flush_caches
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.timing.intervals import classify_speedup
from evaluators.timing.surprising_wins import compute_speedups

TASK = """
import time, torch

class Model(torch.nn.Module):
    def forward(self, x):
        end = time.perf_counter_ns() + {ns}
        while time.perf_counter_ns() < end: pass
        return x

def get_inputs(): return [torch.randn(256)]
def get_init_inputs(): return []
"""
GPU_TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        torch.cuda._sleep({cycles})
        return x

def get_inputs(): return [torch.randn(256)]
def get_init_inputs(): return []
"""
CYCLES_A_US = 1900
EAGER = """
import torch

class Model(torch.nn.Module):
    def forward(self, x): return torch.softmax(torch.relu(x) + 1, 1)

def get_inputs(): return [torch.randn(256, 1024)]
def get_init_inputs(): return []
"""
CALIBRATED = [
    ("launch", 1),
    ("empty", 1),
    ("empty", 4096),
    *(("elementwise", blocks) for blocks in (64, 256, 1024, 4096, 16_384)),
]
"""Kernels of `clock_worker.py` and their blocks. The first is the empty arm's."""
CALIBRATION_CALLS, CALIBRATION_ROUNDS = 20, 8
CONFIG = Config(calls=2, robustness=False, diagnosis=False, draw_shapes=0, baselines=())


def session(bench: Bench, task: str) -> list[dict[str, object]]:
    """Judge a copy of a task's reference; rows of its timings."""
    code = task.replace("class Model(", "class ModelNew(")
    case = Case(
        kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task, trusted=True
    )
    tables = judge(case, bench, CONFIG)
    [evaluation] = tables["evaluations"]
    if evaluation["status"] != "correct":
        raise SystemExit(f"{evaluation['status']}: {evaluation['message']}")
    return tables["timings"]


@contextlib.contextmanager
def load(processes: int) -> Iterator[None]:
    """Run a number of processes that compute without end."""
    pids: list[int] = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            while True:
                math.sqrt(2.0)
        pids.append(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def gpu_us(cycles: int) -> float:
    """Median microseconds of a waiting kernel: what each of ten more adds behind queued work.

    The time between events around one kernel contains the cost of the events themselves.
    """
    return (_time_queued(cycles, 11) - _time_queued(cycles, 1)) / 10


def _time_queued(cycles: int, kernels: int) -> float:
    """Median microseconds between two events around kernels behind queued work."""
    taken: list[float] = []
    for _ in range(50):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(200_000)
        begin.record()
        for _ in range(kernels):
            torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(taken)


def make_waiting(device: str, wanted_us: int) -> tuple[str, float]:
    """A task that waits for some time, and the time that it takes in microseconds."""
    if device == "cpu":
        return TASK.format(ns=wanted_us * 1000), wanted_us
    cycles = wanted_us * CYCLES_A_US
    return GPU_TASK.format(cycles=cycles), gpu_us(cycles)


def calibrate() -> None:
    """Print the clock `gpu` less the empty arm beside events of the worker's own."""
    flushed = torch.ones(compute_flush_bytes("cuda") // 4, dtype=torch.int32, device="cuda")
    inputs = torch.zeros(CALIBRATED[-1][1] * 1024, device="cuda")
    flush_caches(flushed)
    inputs.copy_(torch.ones_like(inputs))
    fd = os.memfd_create("gate")
    os.ftruncate(fd, GATE_BYTES)
    gate = Gate(fd)
    program = str(Path(__file__).with_name("clock_worker.py"))
    times_us: dict[tuple[str, int], tuple[list[float], list[float]]] = {
        each: ([], []) for each in CALIBRATED
    }
    with subprocess.Popen(
        [sys.executable, program, str(fd)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[fd],
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        first = 1
        for _ in range(CALIBRATION_ROUNDS):
            for (kernel, blocks), (judged, own) in times_us.items():
                order = {"kernel": kernel, "blocks": blocks, "first": first}
                worker.stdin.write(json.dumps({**order, "calls": CALIBRATION_CALLS}) + "\n")
                worker.stdin.flush()
                if worker.stdout.readline() != "launched\n":
                    raise SystemExit("the worker has ended: see its error above")
                written = inputs[: blocks * 1024]
                rounds = [Round([(written, written.clone())], [])] * CALIBRATION_CALLS
                times = time_rounds(gate, first, rounds, flushed, 10.0)
                judged += [one.call_ns / 1e3 for one in times]
                own += json.loads(worker.stdout.readline())
                first += CALIBRATION_CALLS
        worker.stdin.close()
    gate.close()
    calls = CALIBRATION_CALLS * CALIBRATION_ROUNDS
    nothing_us = _time_queued(0, 0)  # between events around nothing
    launch_us = time_empty_kernel() / 1e3
    empty_us = statistics.median(times_us["launch", 1][0])
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}: medians of {calls} calls")
    print(f"a call with an empty kernel: {empty_us:.1f} µs; by events: {launch_us:.2f} µs\n")
    print("| kernel | blocks | events, µs | `gpu`, µs | difference, µs | its quartiles |")
    print("|---|---:|---:|---:|---:|---|")
    for (kernel, blocks), (judged, own) in times_us.items():
        clock_us = [ours - empty_us + launch_us for ours in judged]
        events_us = [theirs - nothing_us for theirs in own]
        differences = [ours - theirs for ours, theirs in zip(clock_us, events_us, strict=True)]
        low, middle, high = statistics.quantiles(differences, n=4)
        print(
            f"| {kernel} | {blocks} | {statistics.median(events_us):.2f}"
            f" | {statistics.median(clock_us):.2f} | {middle:+.2f} | {low:+.2f}, {high:+.2f} |"
        )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="device to time")
    parser.add_argument(
        "--sessions", type=int, default=40, help="number of sessions of eager against eager"
    )
    parser.add_argument(
        "--load", type=int, default=0, help="number of busy processes during the sessions"
    )
    parser.add_argument(
        "--calibrate", action="store_true", help="compare the clock gpu with events instead"
    )
    options = parser.parse_args()
    if options.calibrate:
        if not torch.cuda.is_available():
            parser.error("--calibrate needs a GPU")
        calibrate()
        return
    with Bench(options.device) as bench:
        print("  true µs       clock  calls  measured µs    error  overhead µs  resolution µs")
        for wanted_us in (5, 20, 100, 1000) if options.device == "cuda" else (20, 100, 1000):
            task, true_us = make_waiting(options.device, wanted_us)
            rows = session(bench, task)
            for kernel in (row for row in rows if row["arm"] == "kernel"):
                told_us = statistics.median(kernel["samples_ms"]) * 1e3
                print(
                    f"{true_us:9.2f} {kernel['clock']:>11} {kernel['inner_loops']:6}"
                    f" {told_us:12.2f} {told_us / true_us - 1:8.2%}"
                    f" {kernel['overhead_ms'] * 1e3:12.2f} {kernel['resolution_ms'] * 1e3:14.3f}",
                    flush=True,
                )
        counts: dict[str, int] = {}
        begin = time.perf_counter()
        with load(options.load):
            for _ in range(options.sessions):
                rows = session(bench, EAGER)
                low, _, high = compute_speedups(rows)["eager"]
                told = "disturbed" if rows[0]["disturbed"] else classify_speedup(low, high)
                counts[told] = counts.get(told, 0) + 1
        seconds = time.perf_counter() - begin
        listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        print(
            f"eager over eager, {options.load} other busy processes:"
            f" {options.sessions} sessions, {listed}; {seconds / options.sessions:.1f} s each"
        )


if __name__ == "__main__":
    main()
