"""One core for the judge and one for the workers of a GPU while launches are part of the time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Self

from evaluators.device.placement import pick_fast_cores
from evaluators.worker.handle import WorkerHandle

_PROBE_S = 0.01


class PinnedCores:
    """Pins the workers of a session, which never run at the same time, to one core.

    Cores of one host may differ in speed, up to 1.9 times, for seconds. So the fastest core is
    chosen before each block, and all arms of a block have the same one. The judge, which watches
    the gate meanwhile, has the next one. Without workers it pins nothing.
    """

    def __init__(self, workers: Sequence[WorkerHandle]) -> None:
        """Take the workers, that of the kernel first."""
        self._workers = workers
        self._allowed = os.sched_getaffinity(0)
        self._chosen: set[int] = set()
        self.has_held = True
        """Whether every block had its cores, and the kernel stayed on the one it was given."""

    def __enter__(self) -> Self:
        """Return it; `choose` pins."""
        return self

    def choose(self) -> None:
        """Choose the cores of the next block."""
        if not self._workers or not self.has_held:
            return
        os.sched_setaffinity(0, self._allowed)
        self._note_moves()
        fast = pick_fast_cores(sorted(self._allowed), seconds=_PROBE_S) or ()
        self._chosen, own = {*fast[:1]}, {*fast[1:]}
        self.has_held &= bool(own) and all([each.pin(self._chosen) for each in self._workers])
        if self.has_held:
            os.sched_setaffinity(0, own)

    def _note_moves(self) -> None:
        self.has_held &= not self._chosen or self._workers[0].is_pinned(self._chosen)

    def __exit__(self, *_: object) -> None:
        """Let the judge and the workers use every core again."""
        if self._workers:
            self._note_moves()
            os.sched_setaffinity(0, self._allowed)
            for worker in self._workers:
                worker.pin(self._allowed)
