"""Calls of the CUDA driver that torch does not provide."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any


def call(name: str, *arguments: Any) -> None:
    """Call a function of the driver by its name.

    Raises RuntimeError with the driver's message where it fails, AttributeError where the driver is
    too old to have it, and OSError where there is no driver.
    """
    code = getattr(_load_driver(), name)(*arguments)
    if code:
        raise _explain(name, code)


def bind(name: str, *types: Any) -> Callable[..., None]:
    """Return a function of the driver that takes plain numbers of these types.

    A call takes about a microsecond, a fraction of the time of `call`. Raises as that does.
    """
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    function.argtypes = types

    def call_bound(*arguments: int) -> None:
        code = function(*arguments)
        if code:
            raise _explain(name, code)

    return call_bound


def _explain(name: str, code: int) -> RuntimeError:
    text = ctypes.c_char_p()
    _load_driver().cuGetErrorString(code, ctypes.byref(text))
    return RuntimeError(f"{name}: {(text.value or b'unknown error').decode()}")


def has_function(name: str) -> bool:
    """Whether the driver is new enough to have a function."""
    return hasattr(_load_driver(), name)


@functools.cache
def _load_driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")
