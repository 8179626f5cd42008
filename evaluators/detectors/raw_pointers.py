"""Uses raw addresses with ctypes: reads and writes outside the bounds checks of tensors."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_WRITES = split_names("memmove memset string_at wstring_at", "ctypes.")
_CASTS = split_names("cast addressof byref pointer", "ctypes.")
_LIBRARIES = split_names("CDLL PyDLL cdll.LoadLibrary WinDLL", "ctypes.")
_FOREIGN = split_names("libcuda libcudart libtorch libc10 libc.so libpython libcupti")


def find(source: Source) -> Iterator[Hit]:
    """Yield raw reads and writes, casts, and libraries that are not the kernel's own."""
    yield from source.find_calls(_WRITES, 0.6, hot=0.8)
    yield from source.find_calls(_CASTS, 0.2)
    for module, call, name in source.calls:
        if name.endswith((".from_address", ".from_buffer", ".py_object")):
            yield module.hit(call, 0.6)
        elif name in _LIBRARIES:
            text = module.text(call.args[0]) if call.args else None
            whole = not call.args or getattr(call.args[0], "value", 0) is None
            foreign = text is not None and any(word in text for word in _FOREIGN)
            yield module.hit(call, 0.6 if whole else 0.4 if foreign else 0.1)
