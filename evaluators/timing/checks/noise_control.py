"""The noise control of a session: A/A samples of eager, the load of the host, the resolution.

Two eager arms in two processes take turns with the kernel. Their difference is not a property of
any kernel. If it is large, the session contradicts itself: it is disturbed, and ranks no kernel. A
session whose two arms scatter is wide: it is stored as noisy for older readers, and ranks by its
lower bound.
"""

from __future__ import annotations

import math

from evaluators.device.host_load import is_contended
from evaluators.timing.session import EAGER_CONTROL, Session

_MOST_DROPPED = 0.2
_WIDE = math.log(1.10)


def mark_noise(session: Session, noise: float) -> None:
    """Mark a session and its further ones as disturbed if they may not rank, and as noisy if wide.

    noise: ratio of the two eager arms that counts as noise, above 1.
    """
    for measured in (session, *session.further):
        if session.disturbed or is_disturbed(measured, noise):
            measured.mark_disturbed()
        measured.noisy |= session.noisy or _is_wide(measured)
        if measured.is_unresolved("kernel") or measured.is_unresolved("eager"):
            measured.flags.add("below_resolution")
        measured.noisy |= measured.is_unresolved("eager")
    check_host_load(session)


def is_disturbed(session: Session, noise: float) -> bool:
    """Whether the two eager arms differ by more than `noise`, or too few blocks are left.

    A fifth of the blocks may be dropped.
    """
    if len(session.find_dropped_blocks()) > _MOST_DROPPED * len(session.readings):
        return True
    bound = math.log(noise)
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
