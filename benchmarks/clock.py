"""What the judge's clock costs and can tell: an empty candidate, short and long kernels, A/A wins.

    python benchmarks/clock.py [--sessions N] [--load PROCESSES]

Prints, for a processor, the cost of handing inputs over and taking the answer back (an empty
candidate), the relative error at kernels of some lengths that busy-wait for a known time, and of
how many sessions of eager against eager the verdict is `faster`, with as many processes at work
beside them as `--load` names.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import statistics
import time
from collections.abc import Iterator

from evaluators._bench import Bench
from evaluators._case import Case
from evaluators._intervals import verdict
from evaluators._wins import speedups
from evaluators.judge import Config, judge

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
EAGER = """
import torch

class Model(torch.nn.Module):
    def forward(self, x): return torch.softmax(torch.relu(x) + 1, 1)

def get_inputs(): return [torch.randn(256, 1024)]
def get_init_inputs(): return []
"""
CONFIG = Config(calls=2, robustness=False, diagnosis=False, baselines=())


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


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=40, help="sessions of eager over eager")
    parser.add_argument("--load", type=int, default=0, help="processes at work beside them")
    options = parser.parse_args()
    with Bench("cpu") as bench:
        print(" true µs  calls  measured µs    error  overhead µs  resolution µs (per call)")
        for wanted_us in (20, 100, 1000):
            rows = session(bench, TASK.format(ns=wanted_us * 1000))
            kernel = next(row for row in rows if row["arm"] == "kernel" and row["cache"] == "cold")
            told_us = statistics.median(kernel["samples_ms"]) * 1e3
            print(
                f"{wanted_us:8} {kernel['inner_loops']:6} {told_us:12.2f}"
                f" {told_us / wanted_us - 1:8.2%} {kernel['overhead_ms'] * 1e3:12.2f}"
                f" {kernel['resolution_ms'] * 1e3:14.3f}"
            )
        counts: dict[str, int] = {}
        begin = time.perf_counter()
        with load(options.load):
            for _ in range(options.sessions):
                rows = session(bench, EAGER)
                low, _, high = speedups(rows)["eager"]
                told = "noisy" if rows[0]["noisy"] else verdict(low, high)
                counts[told] = counts.get(told, 0) + 1
        seconds = time.perf_counter() - begin
        listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        print(
            f"eager over eager, {options.load} processes at work beside it:"
            f" {options.sessions} sessions, {listed}; {seconds / options.sessions:.1f} s each"
        )


if __name__ == "__main__":
    main()
