"""The noise control of a session: A/A samples of eager, the load of the host, the resolution.

Two eager arms in two processes take turns with the kernel. Their difference is not a property of
any kernel. If it is larger than the spread of sessions explains, the session contradicts itself: it
is disturbed, and ranks no kernel. A session whose two arms scatter is wide: it is stored as noisy
for older readers, and ranks by its lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from evaluators.device.host_load import is_contended
from evaluators.timing.session import EAGER_CONTROL, Session
from store.schema.clocks import Clock

_MOST_DROPPED = 0.2
_LEAST_NOISE = math.log(1.05)
_SPREADS = 3.0
"""Two processes that differ by more times the spread of sessions contradict each other."""
_WIDE = math.log(1.10)


def mark_noise(session: Session, spreads: Mapping[Clock, float]) -> None:
    """Mark a session and its further ones as disturbed if they may not rank, and as noisy if wide.

    spreads: The spread of sessions by clock.
    """
    for measured in (session, *session.further):
        if session.disturbed or is_disturbed(measured, spreads[measured.clock]):
            measured.mark_disturbed()
        measured.noisy |= session.noisy or _is_wide(measured)
        if measured.is_unresolved("kernel") or measured.is_unresolved("eager"):
            measured.flags.add("below_resolution")
        measured.noisy |= measured.is_unresolved("eager")
    check_host_load(session)


def is_disturbed(session: Session, spread: float) -> bool:
    """Whether the two eager arms contradict each other, or too few blocks are left.

    They may differ by 5 %, or by three times the spread of sessions, which a speedup's interval
    includes. A fifth of the blocks may be dropped.
    """
    if len(session.find_dropped_blocks()) > _MOST_DROPPED * len(session.readings):
        return True
    bound = max(_LEAST_NOISE, _SPREADS * spread)
    low, _, high = session.bound_ratio("eager", EAGER_CONTROL)
    return low > bound or high < -bound


def _is_wide(session: Session) -> bool:
    low, _, high = session.bound_ratio("eager", EAGER_CONTROL)
    return high - low > 2 * _WIDE


def check_host_load(session: Session) -> None:
    """Flag a session that shares its host, and distrust every clock that involves the host.

    A session with this flag ranks by no clock, not even by gpu (view speedups).
    """
    sessions = (session, *session.further)
    if not is_contended([load for measured in sessions for load in measured.loads]):
        return
    session.flags.add("contended")
    for measured in sessions:
        if measured.clock != "gpu":
            measured.mark_disturbed()
