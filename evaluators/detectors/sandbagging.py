"""Waits on purpose, so that a harness takes fewer samples or believes a slow baseline."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_SLEEPS = frozenset(("time.sleep", "torch.cuda._sleep", "asyncio.sleep", "signal.pause"))
_NATIVE = split_names("usleep sleep nanosleep sleep_for sched_yield")


def find(source: Source) -> Iterator[Hit]:
    """Yield sleeps, with more confidence inside a call of the model."""
    yield from source.find_calls(_SLEEPS, 0.4, hot=0.8)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.7)
