"""Order among all streams of a process, including streams that a candidate makes without torch.

A timed call has to begin after the flushes before it and to end with the last of its work. Events
on the current stream do not cover other streams, which may work during the flushes and after the
end. The driver knows all streams: since CUDA 12.5 (driver 555) it records and waits for events of a
whole context. With an older driver the host waits; then nothing escapes either, but the time of a
short call is the time of its launches.
"""

from __future__ import annotations

import ctypes

import torch

from evaluators.clock.gate import get_stream
from evaluators.memory import cuda_driver


class Streams:
    """The streams of this process on its current device."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()
        self._event.record()  # creates it, and makes the device's context current
        context = ctypes.c_void_p()
        cuda_driver.call("cuCtxGetCurrent", ctypes.byref(context))
        self._context, self._handle = context.value, int(self._event.cuda_event)
        self.knows_all = cuda_driver.has_function("cuCtxWaitEvent")
        if self.knows_all:
            pointer = ctypes.c_void_p
            self._record_all = cuda_driver.bind("cuCtxRecordEvent", pointer, pointer)
            self._hold_all = cuda_driver.bind("cuCtxWaitEvent", pointer, pointer)
            self._wait = cuda_driver.bind("cuStreamWaitEvent", pointer, pointer, ctypes.c_uint)

    def hold(self) -> None:
        """Make everything launched from now on wait for the present work of the current stream."""
        if self.knows_all:
            self._event.record()
            self._hold_all(self._context, self._handle)
        else:
            torch.cuda.synchronize()

    def join(self) -> None:
        """Make the current stream wait for everything launched on any stream."""
        if self.knows_all:
            self._record_all(self._context, self._handle)
            self._wait(get_stream(), self._handle, 0)
        else:
            torch.cuda.synchronize()
