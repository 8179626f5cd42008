"""How many examples a property is tried on: few in `make test`, all in `make test-all`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

THOROUGH = 100
FEW = 5


def register_profiles() -> None:
    """Try properties on FEW examples, or on THOROUGH with `--hypothesis-profile thorough`.

    A busy host may draw the first example for a second, which is no fault of a strategy.
    """
    for name, count in (("thorough", THOROUGH), ("few", FEW)):
        slow = [HealthCheck.too_slow]
        settings.register_profile(
            name, max_examples=count, deadline=None, suppress_health_check=slow
        )
    settings.load_profile("few")
    # Constants of our modules are drawn as examples. Each test process would read all modules
    # for them, for a second, and few examples hardly draw one.
    read_constants = vars(providers)["_get_local_constants"]
    none = read_constants.__globals__["_local_constants"]
    setattr(  # noqa: B010 (a private name)
        providers, "_get_local_constants", lambda: read_constants() if is_thorough() else none
    )


def count_examples(thorough: int) -> int:
    """Return the number of examples for a costly property: `thorough` in a thorough run."""
    return max(2, thorough * settings().max_examples // THOROUGH)


def is_thorough() -> bool:
    """Whether this run tries everything."""
    return settings().max_examples >= THOROUGH
