"""Sessions that share their host."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from evaluators.device.timing_conditions import Load, is_contended, read_load
from evaluators.timing.checks import check_host_load
from evaluators.timing.session import Session

CORES = len(os.sched_getaffinity(0))


@contextmanager
def keep_busy(processes: int) -> Iterator[None]:
    with ExitStack() as started:
        for _ in range(processes):
            worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            started.callback(worker.wait)
            started.callback(worker.kill)
        time.sleep(0.5)
        yield


@pytest.mark.skipif(os.cpu_count() != CORES, reason="this process may not use every core")
@pytest.mark.clock
def test_processes_that_need_every_core_are_seen() -> None:
    with keep_busy(CORES + 1):
        loads = [read_load() for _ in range(20) if time.sleep(0.01) is None]
    assert is_contended(loads)


def test_some_other_work_and_short_bursts_are_no_contention() -> None:
    quiet = [Load(CORES - 1, 0, 100 + n) for n in range(11)]
    bursts = [Load(5 * CORES if n % 3 == 0 else 0, 0, 100 + n) for n in range(11)]
    assert not is_contended(quiet)
    assert not is_contended(bursts)
    assert not is_contended([])


def test_time_that_is_taken_away_is_contention() -> None:
    assert is_contended([Load(0, 0, 100), Load(0, 6, 200)])
    assert not is_contended([Load(0, 50, 100), Load(0, 54, 200)])


def test_a_contended_session_is_disturbed_by_every_clock_that_the_host_is_part_of() -> None:
    gpu, latency = (Session.of(1, ["kernel", "eager"], clock) for clock in ("gpu", "latency"))
    gpu.further = [latency]
    gpu.loads = [Load(CORES + 1, 0, 1)]
    check_host_load(gpu)
    assert gpu.flags == {"contended"}
    assert (gpu.disturbed, latency.disturbed) == (False, True)
    assert (gpu.noisy, latency.noisy) == (False, True)
