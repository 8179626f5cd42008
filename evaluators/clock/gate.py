"""A gate between two processes with GPU streams, in host memory that both see.

The worker's stream waits at the gate and reports when its call behind the gate is done. The judge's
stream opens the gate, and the judge watches both words. The worker can be frozen with its calls
launched.

For calls whose launches are part of their time, the worker itself waits at the gate instead of its
stream, and the judge itself waits for the reports.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable

import torch

from evaluators.memory import cuda_driver

GATE_BYTES = mmap.PAGESIZE
_OPENED, _DONE, _JOINED = 0, 16, 32
"""Indices of the words, 64 bytes apart so that they share no cache line."""
_POLLS = 2000
"""Looks at a word between two looks at the worker."""
_SPIN_NS = 2_000_000
"""Nanoseconds after which the judge lets other processes run between two looks."""
_PORTABLE_AND_MAPPED = 3
_AT_LEAST = 0
_PLAIN = 0


def get_stream() -> int:
    """Return the handle of the current stream; faster than by torch's public functions."""
    return torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())  # pyright: ignore[reportPrivateUsage]


class Gate:
    """Counters in a shared file: `opened` by the judge, the others by the worker.

    Calls are numbered from 1 and pass the gate in order. Raises RuntimeError where the driver
    cannot map the file, and OSError.
    """

    def __init__(self, fd: int) -> None:
        self._file = mmap.mmap(fd, GATE_BYTES)
        self._words = (ctypes.c_uint32 * (GATE_BYTES // 4)).from_buffer(self._file)
        self._host = ctypes.c_void_p(ctypes.addressof(self._words))
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # makes the device's context current
        cuda_driver.call(
            "cuMemHostRegister_v2",
            self._host,
            ctypes.c_size_t(GATE_BYTES),
            ctypes.c_uint(_PORTABLE_AND_MAPPED),
        )
        address = ctypes.c_uint64()
        cuda_driver.call(
            "cuMemHostGetDevicePointer_v2", ctypes.byref(address), self._host, ctypes.c_uint(0)
        )
        self._device = address.value
        order = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint
        self._wait_value = cuda_driver.bind("cuStreamWaitValue32_v2", *order)
        self._write_value = cuda_driver.bind("cuStreamWriteValue32_v2", *order)

    def wait_for_opening(self, number: int) -> None:
        """Make the current stream wait until the judge opens the gate for a call."""
        self._wait_value(get_stream(), self._device + 4 * _OPENED, number, _AT_LEAST)

    def report(self, number: int) -> None:
        """Make the current stream report to the judge that a call is done."""
        self._write(_DONE, number)

    def open(self, number: int) -> None:
        """Make the current stream open the gate for a call."""
        self._write(_OPENED, number)

    def open_now(self, number: int) -> None:
        """Open the gate for calls up to this one, independently of the streams."""
        self._words[_OPENED] = number

    def wait_in_person(self, number: int) -> None:
        """Make this process, the worker, wait until the judge opens the gate for a call."""
        words = self._words
        while words[_OPENED] < number:
            pass

    def report_joined(self, number: int) -> None:
        """Make the current stream report that every stream is done."""
        self._write(_JOINED, number)

    def watch_call(self, number: int, limit_s: float) -> tuple[int, int] | None:
        """Wait until the gate is open for a call, and for the report that the call is done.

        Returns both times in nanoseconds, by `time.perf_counter_ns`, or None where it is not done
        in time. The first is the last look at which the gate was closed: where the system holds
        this process up, a call looks longer, not shorter.
        """
        words, read_ns = self._words, time.perf_counter_ns
        opened_ns = now_ns = read_ns()
        limit_ns, spin_ns = now_ns + int(limit_s * 1e9), now_ns + _SPIN_NS
        while words[_OPENED] < number:
            opened_ns = now_ns
            now_ns = read_ns()
            if now_ns > limit_ns:
                return None
        while words[_DONE] < number:
            now_ns = read_ns()
            if now_ns > spin_ns:
                if now_ns > limit_ns:
                    return None
                time.sleep(0)
        return opened_ns, read_ns()

    def follow_calls(self, first: int, last: int, is_over: Callable[[], bool]) -> int | None:
        """Open the gate for each call at the report of the one before, until all streams are done.

        The gate is open for the first call already. Returns the time of the end in nanoseconds, by
        `time.perf_counter_ns`, or None where `is_over`, asked now and then, says that the worker
        will not report.
        """
        for number in range(first, last):
            if not self._await(_DONE, number, is_over):
                return None
            self.open_now(number + 1)
        return time.perf_counter_ns() if self._await(_JOINED, last, is_over) else None

    def _await(self, word: int, number: int, is_over: Callable[[], bool]) -> bool:
        words = self._words
        while True:
            for _ in range(_POLLS):
                if words[word] >= number:
                    return True
            if is_over():
                return words[word] >= number

    def close(self) -> None:
        """Unregister the memory from the driver. No stream may be waiting at the gate."""
        if self._device:
            self._device = 0
            cuda_driver.call("cuMemHostUnregister", self._host)

    def _write(self, word: int, number: int) -> None:
        self._write_value(get_stream(), self._device + 4 * word, number, _PLAIN)
