"""One profiled call inside a worker: which kernels ran, how long, and what the device waited for.

The profile comes from the candidate's own process, so it cannot be trusted: it describes a kernel
and decides nothing.
"""

import contextlib
import os
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from torch._C._autograd import DeviceType
from torch.autograd.profiler import profile  # torch.profiler's own, without seconds of imports

from evaluators.processes.schema import MOST_KERNELS, MOST_NAME

_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch")
_IN_MEMORY = ("/memfd:", "/dev/shm/")


def list_own_folders() -> list[str]:
    """Return the folders of a candidate's own native code; call it before any of its code runs."""
    return [os.getcwd() + "/", os.environ.get("TORCH_EXTENSIONS_DIR", os.getcwd()) + "/"]


def gather(
    call: Callable[[], object],
    *,
    cuda: bool,
    before: Callable[[], object],
    synchronize: Callable[[], None],
    folders: Iterable[str],
) -> dict[str, Any]:
    """Profile a call after a first one whose profile is dropped; `before` runs between them.

    Returns `kernels` (name, nanoseconds and calls, the longest first: device kernels, or operators
    with their own time on a processor), `busy_ns` in which any of them ran, `wall_ns` of the call,
    `launches`, `waits` (synchronizations before the last launch), and `own_code`: whether code from
    `folders` is loaded.
    """
    device = "cuda" if cuda else None
    with _silence_stderr():
        with profile(use_device=device, use_kineto=True):
            call()
            synchronize()
        before()
        profiled: Any = profile(use_device=device, use_kineto=True)
        with profiled:
            begin = perf_counter_ns()
            call()
            synchronize()
            wall_ns = perf_counter_ns() - begin
    events: list[Any] = list(profiled.function_events or [])
    host = [event for event in events if event.device_type == DeviceType.CPU]
    found: dict[str, list[Any]] = {}
    spans: list[tuple[float, float]] = []
    for event in events if cuda else host:
        span = event.time_range
        if cuda and event.device_type != DeviceType.CUDA:
            continue
        entry = found.setdefault(event.name[:MOST_NAME], [event.name[:MOST_NAME], 0, 0])
        entry[1] += round(1000 * (span.elapsed_us() if cuda else event.self_cpu_time_total))
        entry[2] += 1
        spans.append((span.start, span.end))
    launched = [event.time_range.start for event in host if event.name.startswith(_LAUNCHES)]
    last = max(launched, default=0.0)
    ordered = sorted(found.values(), key=lambda entry: -entry[1])
    busy_us, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        busy_us += max(0.0, end - max(start, until))
        until = max(until, end)
    # Whether a file below these folders is mapped as code, other than torch.compile's.
    compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/nowhere") + "/"
    mapped = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    files = [fields[5] for fields in mapped if len(fields) == 6 and "x" in fields[1]]
    own = (*folders, *_IN_MEMORY)
    has_own_code = any(f.startswith(own) and not f.startswith(compiled) for f in files)
    return {
        "kernels": ordered[:MOST_KERNELS],
        "busy_ns": round(1000 * busy_us),
        "wall_ns": wall_ns,
        "launches": sum(entry[2] for entry in ordered),
        "waits": sum(e.name in _WAITS and e.time_range.start < last for e in host),
        "own_code": has_own_code,
    }


@contextlib.contextmanager
def _silence_stderr() -> Generator[None]:
    """Discard stderr: the profiler's remarks do not belong in the candidate's log."""
    held = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
