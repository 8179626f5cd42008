"""The roofline check: a kernel cannot be faster than the memory of its device allows."""

from __future__ import annotations

import statistics

from evaluators.device.roofline import Floor
from evaluators.timing.session import Session
from evaluators.worker.handle import Failed

_FLOOR_SHARE = 0.9


def check_floor(session: Session, floor: Floor) -> None:
    """Raise Failed if the kernel is faster than the memory of the device allows.

    Near the floor, or below the time that the reference's own operations take, it is flagged.
    """
    kernel_ms = statistics.median(session.samples_ms["kernel"])
    if kernel_ms < _FLOOR_SHARE * floor.memory_ms:
        message = (
            f"a call takes {kernel_ms:.4g} ms, in which the device cannot move what the answer"
            f" needs: that takes {floor.memory_ms:.4g} ms"
        )
        raise Failed("rejected", "below_roofline", message)
    if kernel_ms < max(floor.memory_ms, _FLOOR_SHARE * floor.compute_ms):
        session.flags.add("near_roofline")
