"""Calls of the CUDA driver that torch does not provide, and GPU memory that two processes share.

One process allocates the memory, and another opens it through CUDA IPC. Torch's sharing of storages
keeps counters in files and needs torch's protocol on the other side. A handle is 64 bytes that name
the allocation.
"""

import ctypes
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch


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


_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1
_MOST_UNUSED_BYTES = 2 << 30
"""Unused GPU memory that a process may keep for itself."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * _HANDLE_BYTES)]


class _Exposed:
    """Raw device memory with the interface of an array, for torch."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class SharedMemory:
    """A piece of this process's GPU memory that another process may open by `handle`."""

    def __init__(self, size_bytes: int) -> None:
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # makes the device's context current
        self._address = ctypes.c_uint64()
        size = ctypes.c_size_t(size_bytes)
        call("cuMemAlloc_v2", ctypes.byref(self._address), size)
        handle = _Handle()
        call("cuIpcGetMemHandle", ctypes.byref(handle), self._address)
        self.handle = bytes(handle).hex()
        self.bytes = wrap_memory(self._address.value, size_bytes)

    def close(self) -> None:
        """Free the memory; no other process may have it open, and its tensors become invalid."""
        if self._address.value:
            torch.cuda.synchronize()
            call("cuMemFree_v2", self._address)
            self._address = ctypes.c_uint64()


def name_pieces(addresses: Iterable[int]) -> list[tuple[int, int, str]]:
    """Return begin, bytes and handle of each allocation that contains one of the addresses.

    The calls do not wait for the GPU, since launches wait behind the judge's gate meanwhile. Raises
    RuntimeError where memory is of a kind that cannot be shared.
    """
    found: dict[int, tuple[int, int, str]] = {}
    for address in addresses:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        inside = ctypes.c_uint64(address)
        call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), inside)
        if base.value not in found:
            handle = _Handle()
            call("cuIpcGetMemHandle", ctypes.byref(handle), base)
            found[base.value] = (base.value, size.value, bytes(handle).hex())
    return list(found.values())


class OpenedMemory:
    """GPU memory of another process. Raises ValueError for a handle of another form."""

    def __init__(self, handle: str, size_bytes: int) -> None:
        raw = bytes.fromhex(handle)
        if len(raw) != _HANDLE_BYTES:
            raise ValueError(f"a memory handle of {len(raw)} bytes")
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()
        self._address = ctypes.c_uint64()
        call(
            "cuIpcOpenMemHandle_v2",
            ctypes.byref(self._address),
            _Handle.from_buffer_copy(raw),
            ctypes.c_uint(_LAZY_PEER_ACCESS),
        )
        base, held = ctypes.c_uint64(), ctypes.c_size_t()
        call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(held), self._address)
        if held.value < size_bytes:
            raise ValueError(
                f"shared memory of {held.value} bytes where {size_bytes} were asked for"
            )
        self.bytes = wrap_memory(self._address.value, size_bytes)

    def close(self) -> None:
        """Close the memory; its tensors become invalid."""
        if self._address.value:
            torch.cuda.synchronize()
            call("cuIpcCloseMemHandle", self._address)
            self._address = ctypes.c_uint64()


def wrap_memory(address: int, size_bytes: int) -> torch.Tensor:
    """Return a tensor of bytes over GPU memory. The caller keeps the memory alive."""
    return torch.as_tensor(_Exposed(address, size_bytes), device="cuda")


def release_unused_memory() -> None:
    """Give what torch keeps of freed GPU memory back, so that other processes can allocate it."""
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _MOST_UNUSED_BYTES:
        torch.cuda.empty_cache()
