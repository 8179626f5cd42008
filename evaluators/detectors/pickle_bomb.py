"""Decides what runs where its objects are unpickled, copied or shown."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, words

VERSION = 1
CLASS = "pickle_bomb"
_METHODS = words("__reduce__ __reduce_ex__ __setstate__ __getnewargs__ __getnewargs_ex__")
_CALLS = words("pickle constructor __newobj__", "copyreg.")


def find(source: Source) -> Iterator[Hit]:
    """Yield methods that pickle calls, and registrations with copyreg."""
    yield from source.called(_CALLS, 0.8)
    for module in source.modules:
        for name in sorted(_METHODS):
            for function in module.functions.get(name, []):
                yield module.hit(function, 0.7)
