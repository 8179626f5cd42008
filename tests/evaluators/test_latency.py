"""A latency that is shorter than the same calls take on the GPU alone is refused."""

from __future__ import annotations

import pytest

from evaluators.sandbox.failures import Failed
from evaluators.timing.checks import is_slowed_by_gate
from evaluators.timing.session import EMPTY, Session
from store.schema.clocks import Clock


def session(clock: Clock, kernel_ms: float, eager_ms: float) -> Session:
    """A session of twenty blocks whose arms took these times."""
    opened = Session.of(1, ["kernel", "eager", EMPTY], clock)
    for _ in range(20):
        for position, (arm, ms) in enumerate((("kernel", kernel_ms), ("eager", eager_ms))):
            opened.add_sample(arm, position, round((0.01 + ms) * 1e6))
        opened.add_sample(EMPTY, 2, 10_000)
    opened.subtract_overhead()
    return opened


@pytest.mark.parametrize("kernel_ms", [0.9, 1.0, 5.0])
def test_a_latency_at_least_as_long_as_the_work_is_kept(kernel_ms: float) -> None:
    measured = session("gpu", 1.0, 1.0)
    measured.further.append(session("latency", kernel_ms, 1.0))
    assert not is_slowed_by_gate(measured)


def test_work_that_begins_before_the_call_is_refused() -> None:
    measured = session("gpu", 1.0, 1.0)
    measured.further += [session("latency", 0.5, 1.0), session("throughput", 0.1, 1.0)]
    with pytest.raises(Failed) as failed:
        is_slowed_by_gate(measured)
    assert (failed.value.status, failed.value.reason) == ("rejected", "timer_mismatch")


@pytest.mark.parametrize(("early_ms", "is_early"), [(0.2, False), (0.5, True)])
def test_a_burst_without_time_for_early_work_shows_that_the_gate_slows_a_kernel(
    early_ms: float, is_early: bool
) -> None:
    measured, latency = session("gpu", 1.0, 1.0), session("latency", 0.5, 1.0)
    latency.early_ms = [early_ms] * 20
    measured.further.append(latency)
    if is_early:
        with pytest.raises(Failed):
            is_slowed_by_gate(measured)
    else:
        assert is_slowed_by_gate(measured)


def test_a_gpu_that_was_slower_by_one_clock_counts_for_both() -> None:
    # Other work on the GPU halved its speed while the clock `gpu` was read.
    measured = session("gpu", 2.0, 2.0)
    measured.further.append(session("latency", 1.0, 1.0))
    assert not is_slowed_by_gate(measured)


def test_a_session_without_the_clock_gpu_has_nothing_to_compare() -> None:
    measured = session("latency", 0.1, 1.0)
    measured.further.append(session("throughput", 0.1, 1.0))
    assert not is_slowed_by_gate(measured)
