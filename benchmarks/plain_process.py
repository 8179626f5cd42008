"""A plain process for `agreement_plain.py`: times a module and a kernel with nothing but torch.

    python benchmarks/plain_process.py '{"task": "task.py", "kernel": "kernel.py", …}'

It imports neither the judge nor the store, runs in no sandbox, and prints one line of JSON. Samples
of eager and kernel take turns. There are as many inputs as calls of the faster of the two in 5 ms,
at most 256, and all are written anew before every sample. A sample calls a module once on each of
them, in turn, or on some of them if that would take longer than 20 ms.

| clock | a sample |
|---|---|
| `throughput` | calls in a row, then one synchronization |
| `latency` | calls that are each followed by a synchronization |
| `gpu` | CUDA events around one call behind queued work, less events around nothing |

`cold` and `warm` say whether the caches are flushed before the first call; for `gpu`, before each.
Each answer is dropped at once, so that calls write to the same memory. `kept` keeps those of a
sample until it ends, as the judge has to.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SAMPLE_S = 5e-3
LONGEST_SAMPLE_S = 20e-3
MOST_CALLS = 256
MOST_SAMPLES = 40
FEWEST_SAMPLES = 7
UNTIMED_CALLS = 4
EVENTS_A_SAMPLE = 5
FLUSH_BYTES = 256 << 20
"""More than the caches of a processor or the L2 cache of a GPU hold."""
SLOT_BYTES = {"cpu": 256 << 20, "cuda": 4 << 30}
CYCLES_A_SECOND = 2e9
"""Of `torch.cuda._sleep`, rounded up: the clock of a GPU."""

Inputs = Sequence[Any]
Module = Callable[..., Any]


class Plain:
    """The modules of one kernel and its task, with inputs for every call of a sample."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.device: str = order["device"]
        task = import_file("task", order["task"])
        kernel = import_file("kernel", order["kernel"])
        arguments = list(task.get_init_inputs())
        self.draw: Callable[[], Inputs] = lambda: [self._place(x) for x in task.get_inputs()]
        self.arms: dict[str, Module] = {
            "eager": self._place(task.Model(*arguments)),
            "kernel": self._place(getattr(kernel, order["entry_point"])(*arguments)),
        }
        # Ones, since zeros that nobody has written share one page of memory.
        self.flushed = torch.ones(FLUSH_BYTES // 4, dtype=torch.int32, device=self.device)
        self.spare = self.draw()
        for module in self.arms.values():
            self._call(module, 2 * UNTIMED_CALLS)
        self.call_s = {name: self._call(module, 5) for name, module in self.arms.items()}
        answer = self.arms["eager"](*self.spare)
        tensors = [x for x in (*self.spare, answer) if isinstance(x, torch.Tensor)]
        size = sum(x.nbytes for x in tensors)
        most = min(MOST_CALLS, SLOT_BYTES[self.device] // max(size, 1))
        self.calls = max(1, min(most, round(SAMPLE_S / min(self.call_s.values()))))
        self.bank = [self.draw() for _ in range(min(self.calls, 3) + 1)]
        copies = (self.bank[index % len(self.bank)] for index in range(self.calls))
        self.slots = [
            [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs] for inputs in copies
        ]
        self.rounds = itertools.count()

    def _place(self, value: Any) -> Any:
        return value.to(self.device) if isinstance(value, torch.Tensor | torch.nn.Module) else value

    def synchronize(self) -> None:
        """Wait for the GPU, if there is one."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _call(self, module: Module, calls: int) -> float:
        """Call a module on inputs that no sample uses; return the seconds of a call."""
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            module(*self.spare)
        self.synchronize()
        return (time.perf_counter() - begin) / calls

    def _prepare(self, arm: str, *, cold: bool) -> list[Inputs]:
        """Write all inputs, flush the caches, and warm up; return the inputs of a sample."""
        number = next(self.rounds)
        for index, slot in enumerate(self.slots):
            source = self.bank[(index + number) % len(self.bank)]
            for target, value in zip(slot, source, strict=True):
                if isinstance(target, torch.Tensor):
                    target.copy_(value)
        if cold:
            self.flushed.sum()
        self._call(self.arms[arm], UNTIMED_CALLS)
        calls = min(self.calls, max(1, round(LONGEST_SAMPLE_S / self.call_s[arm])))
        return [self.slots[(number + index) % self.calls] for index in range(calls)]

    def time_calls(self, arm: str, *, cold: bool, alone: bool, keeps: bool = False) -> float:
        """Return the milliseconds of a call: in a row, or `alone` on a device that is idle."""
        module, slots = self.arms[arm], self._prepare(arm, cold=cold)
        answers: list[Any] = []
        begin = time.perf_counter()
        for slot in slots:
            if keeps:
                answers.append(module(*slot))
            else:
                module(*slot)
            if alone:
                self.synchronize()
        self.synchronize()
        return (time.perf_counter() - begin) / len(slots) * 1e3

    def time_device(self, arm: str, *, cold: bool) -> float:
        """Return the milliseconds that a GPU works on a call whose launches it does not wait for.

        The queued work is prolonged until all launches fit behind it. A call that waits for the GPU
        itself never does; its time then contains launches, as without a queue.
        """
        module, slots = self.arms[arm], self._prepare(arm, cold=False)
        queued_s = 3 * self.call_s[arm] + 2e-4
        times: list[float] = []
        for slot in slots[:EVENTS_A_SAMPLE]:
            pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(2)]
            for attempt in range(4):
                if cold:
                    self.flushed.sum()
                torch.cuda._sleep(round(queued_s * 2**attempt * CYCLES_A_SECOND))  # pyright: ignore[reportPrivateUsage]
                for event in pairs[0]:
                    event.record()
                pairs[1][0].record()
                module(*slot)
                pairs[1][1].record()
                is_queued = not pairs[0][0].query()
                torch.cuda.synchronize()
                if is_queued:
                    break
            nothing, call = (begin.elapsed_time(end) for begin, end in pairs)
            times.append(call - nothing)
        return statistics.median(times)

    def measure(self, seconds: float) -> dict[str, dict[str, list[float]]]:
        """Return milliseconds by clock and arm; the samples of all clocks and arms take turns."""
        clocks: dict[str, Callable[[str], float]] = {
            "throughput cold": lambda arm: self.time_calls(arm, cold=True, alone=False),
            "throughput warm": lambda arm: self.time_calls(arm, cold=False, alone=False),
            "throughput warm, kept": lambda arm: self.time_calls(
                arm, cold=False, alone=False, keeps=True
            ),
            "latency cold": lambda arm: self.time_calls(arm, cold=True, alone=True),
            "latency warm": lambda arm: self.time_calls(arm, cold=False, alone=True),
        }
        if self.device == "cuda":
            clocks["gpu cold"] = lambda arm: self.time_device(arm, cold=True)
        times: dict[str, dict[str, list[float]]] = {c: {a: [] for a in self.arms} for c in clocks}
        begin = time.monotonic()
        for number in range(MOST_SAMPLES):
            if number >= FEWEST_SAMPLES and time.monotonic() - begin > seconds:
                break
            for clock, time_sample in clocks.items():
                for arm in self.arms:
                    times[clock][arm].append(time_sample(arm))
        return times


def import_file(name: str, path: str) -> ModuleType:
    """Run a file as a module that finds the files beside it."""
    sys.path.insert(0, str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Time what the argument names, and print the medians."""
    order = json.loads(sys.argv[1])
    if order.get("core") is not None:
        os.sched_setaffinity(0, {order["core"]})
    torch.set_num_threads(order["threads"])
    torch.manual_seed(0)
    with torch.no_grad():
        plain = Plain(order)
        times = plain.measure(order["seconds"])
    medians = {c: {a: statistics.median(ms) for a, ms in arms.items()} for c, arms in times.items()}
    samples = len(next(iter(times.values()))["kernel"])
    print(json.dumps({"ms": medians, "calls": plain.calls, "samples": samples}))


if __name__ == "__main__":
    main()
