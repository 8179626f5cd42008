"""The noise control of a session: A/A samples of eager, the load of the host, the resolution.

Two eager arms in two processes take turns with the kernel. Their difference is not a property of
any kernel, so it widens the interval of every speedup. If it is large, the session does not rank
any kernel.
"""

from __future__ import annotations

import math
import statistics

from evaluators.device.host_load import is_contended
from evaluators.timing.session import EAGER_CONTROL, Session

_MOST_DROPPED = 0.2
_WIDE = math.log(1.10)


def mark_noise(session: Session, noise: float) -> None:
    """Mark a session and its further ones as noisy if they may not rank.

    noise: ratio of the two eager arms that counts as noise, above 1.
    """
    session.noisy |= is_noisy(session, noise)
    _check_resolution(session)
    for further in session.further:
        further.noisy = session.noisy or is_noisy(further, noise)
        _check_resolution(further)
    check_host_load(session)


def is_noisy(session: Session, noise: float) -> bool:
    """Whether the two eager arms differ by more than `noise`, or too erratically to measure.

    A session in which more than a fifth of the blocks had to be dropped is noisy, too.
    """
    bound = math.log(noise)
    if len(session.find_dropped_blocks()) > _MOST_DROPPED * len(session.readings):
        return True
    low, _, high = session.bound_ratio("eager", EAGER_CONTROL)
    return low > bound or high < -bound or high - low > 2 * _WIDE


def check_host_load(session: Session) -> None:
    """Flag a session that shares its host, and distrust every clock that involves the host.

    A session with this flag ranks by no clock, not even by gpu (view speedups).
    """
    sessions = (session, *session.further)
    if not is_contended([load for measured in sessions for load in measured.loads]):
        return
    session.flags.add("contended")
    for measured in sessions:
        measured.noisy |= measured.clock != "gpu"


def _check_resolution(session: Session) -> None:
    """Flag a kernel that is too short for the clock; distrust a session whose eager is too short.

    A kernel that is reported with the shortest measurable time is at least that fast. If eager is
    as short, the session shows nothing.
    """
    is_short = {
        arm: statistics.median(session.samples_ms[arm]) <= session.least_ms
        for arm in ("kernel", "eager")
    }
    if is_short["kernel"] or is_short["eager"]:
        session.flags.add("below_resolution")
    session.noisy |= is_short["eager"]
