"""How many examples a property is tried on: few in `make test`, all in `make test-all`."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = 100
FEW = 5


def register_profiles() -> None:
    """Try properties on FEW examples, or on THOROUGH with `--hypothesis-profile thorough`."""
    settings.register_profile("thorough", max_examples=THOROUGH)
    settings.register_profile("few", max_examples=FEW)
    settings.load_profile("few")


def count_examples(thorough: int) -> int:
    """Return the number of examples for a costly property: `thorough` in a thorough run."""
    return max(2, thorough * settings().max_examples // THOROUGH)


def is_thorough() -> bool:
    """Whether this run tries everything."""
    return settings().max_examples >= THOROUGH
