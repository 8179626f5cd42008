"""Runs its own code when its objects are unpickled, copied or shown."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_METHODS = split_names("__reduce__ __reduce_ex__ __setstate__ __getnewargs__ __getnewargs_ex__")
_CALLS = split_names("pickle constructor __newobj__", "copyreg.")


def find(source: Source) -> Iterator[Hit]:
    """Yield methods that pickle calls, and registrations with copyreg."""
    yield from source.find_calls(_CALLS, 0.8)
    for module in source.modules:
        for name in sorted(_METHODS):
            for function in module.functions.get(name, []):
                yield module.hit(function, 0.7)
