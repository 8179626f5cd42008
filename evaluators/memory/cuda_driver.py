"""Calls of the CUDA driver that torch does not provide."""

from __future__ import annotations

import ctypes
import functools
from typing import Any


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver by its name.

    Raises RuntimeError with the driver's message where it fails, AttributeError where the driver is
    too old to have it, and OSError where there is no driver.
    """
    code = getattr(_load_driver(), name)(*arguments)
    if code:
        text = ctypes.c_char_p()
        _load_driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")


def has_function(name: str) -> bool:
    """Whether the driver is new enough to have a function."""
    return hasattr(_load_driver(), name)


@functools.cache
def _load_driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
