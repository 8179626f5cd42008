"""A worker of `clock.py --calibrate`: launches kernels behind the judge's gate, and times them too.

    python benchmarks/clock_worker.py DESCRIPTOR

Reads one order of JSON per line: kernel, blocks, number of the first call, number of calls. Prints
a line once the calls are launched, and then, once they have run, the microseconds between two
events of its own around each of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from evaluators.clock.empty_kernel import launch_empty_kernel
from evaluators.clock.gate import Gate
from evaluators.worker.loop import Streams

ELEMENTS = 1024
"""Of float32 that a block of the elementwise kernel reads and writes."""
MOST_BLOCKS = 16_384


@triton.jit
def do_nothing(memory):  # pyright: ignore
    """Do nothing in any number of blocks."""


@triton.jit
def add_one(source, target, count: tl.constexpr):  # pyright: ignore
    """Add one to the elements of a block."""
    at = tl.program_id(0) * count + tl.arange(0, count)
    tl.store(target + at, tl.load(source + at) + 1)


def launch(
    gate: Gate, streams: Streams, work: Callable[[], object], first: int, calls: int
) -> list[tuple[torch.cuda.Event, torch.cuda.Event]]:
    """Launch calls behind the gate, as a worker of the judge does (`evaluators.worker.loop`)."""
    marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    for number in range(first, first + calls):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        gate.wait_for_opening(number)
        streams.hold()
        begin.record()
        work()
        streams.join()
        end.record()
        gate.report(number)
        marks.append((begin, end))
    return marks


def main() -> None:
    """Answer orders until the input ends."""
    gate, streams = Gate(int(sys.argv[1])), Streams()
    source, target = (torch.zeros(MOST_BLOCKS * ELEMENTS, device="cuda") for _ in range(2))

    def choose_work(kernel: str, blocks: int) -> Callable[[], Any]:
        works: dict[str, Callable[[], Any]] = {
            "launch": launch_empty_kernel,
            "empty": lambda: do_nothing[(blocks,)](source),
            "elementwise": lambda: add_one[(blocks,)](source, target, ELEMENTS),
        }
        return works[kernel]

    for line in sys.stdin:
        order = json.loads(line)
        work = choose_work(order["kernel"], order["blocks"])
        work()  # the driver loads a kernel at its first launch, and waits for the GPU to do so
        torch.cuda.synchronize()
        marks = launch(gate, streams, work, order["first"], order["calls"])
        print("launched", flush=True)
        torch.cuda.synchronize()
        times_us = [begin.elapsed_time(end) * 1e3 for begin, end in marks]
        print(json.dumps(times_us), flush=True)


if __name__ == "__main__":
    main()
