"""What a piece of work will cost in seconds of a GPU, and when it has to stop."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Budget:
    """Seconds that a command may take. It announces its cost before it starts."""

    seconds: float
    begun: float = field(default_factory=time.monotonic)
    _stage: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - self.spent

    def announce(self, what: str, units: int, unit_s: float) -> None:
        """Print the expected cost of units of work, and how many fit into the budget."""
        fits = (
            "" if units * unit_s <= self.left else f"; about {max(0, int(self.left / unit_s))} fit"
        )
        say(f"{what}: {units} left, expected {units * unit_s:.0f} s of {self.left:.0f} s{fits}")
        self._stage = time.monotonic()

    def report(self, what: str, done: int, units: int) -> None:
        """Print the measured cost of the units that are done, and what the rest will cost."""
        unit_s = (time.monotonic() - self._stage) / done
        rest = (units - done) * unit_s
        say(f"{what}: {done} of {units} at {unit_s:.3g} s each, {rest:.0f} s to go")


def say(text: str) -> None:
    """Print a line at once, so that a command that is killed has printed it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
