"""Refuses a latency that is shorter than the same calls take on the GPU alone.

While the inputs of a burst are written, the candidate's process is frozen, but work on the GPU that
it has launched before is not, and could begin early. By the clock `gpu` the judge would notice that
(`clock.rounds`). A call with its launches takes at least as long as without them.
"""

from __future__ import annotations

import statistics

from evaluators.sandbox.failures import Failed
from evaluators.timing.session import Session

_LEAST = 0.8
"""Of its time by the clock `gpu`, a call that is not launched beforehand takes at least this."""


def reject_early_work(session: Session) -> None:
    """Raise Failed if the kernel's latency is below its time by the clock `gpu`.

    Eager's ratio of the two counts for the kernel as well: other work on the GPU may slow one of
    the clocks down. Does nothing to sessions without both clocks.
    """
    latencies = [one for one in session.further if one.clock == "latency"]
    if session.clock != "gpu" or not latencies:
        return
    [latency] = latencies
    eager_ms, kernel_ms = (
        (_median(latency, arm), _median(session, arm)) for arm in ("eager", "kernel")
    )
    usual = min(1.0, eager_ms[0] / eager_ms[1])
    margin_ms = session.compute_least("kernel") + latency.compute_least("kernel")
    if kernel_ms[0] + margin_ms < _LEAST * usual * kernel_ms[1]:
        message = (
            f"a call takes {kernel_ms[0]:.4f} ms with its launches and {kernel_ms[1]:.4f} ms "
            "without: its work begins before the call"
        )
        raise Failed("rejected", "timer_mismatch", message)


def _median(session: Session, arm: str) -> float:
    return statistics.median(session.samples_ms[arm])
