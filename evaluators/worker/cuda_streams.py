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

from evaluators.memory import cuda_driver


class Streams:
    """The streams of this process on its current device."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()
        self._event.record()  # creates it, and makes the device's context current
        self._context = ctypes.c_void_p()
        cuda_driver.call("cuCtxGetCurrent", ctypes.byref(self._context))
        self.knows_all = cuda_driver.has_function("cuCtxWaitEvent")

    def hold(self) -> None:
        """Make everything launched from now on wait for the present work of the current stream."""
        if self.knows_all:
            self._event.record()
            cuda_driver.call("cuCtxWaitEvent", self._context, self._handle())
        else:
            torch.cuda.synchronize()

    def join(self) -> None:
        """Make the current stream wait for everything launched on any stream."""
        if self.knows_all:
            cuda_driver.call("cuCtxRecordEvent", self._context, self._handle())
            self._event.wait()
        else:
            torch.cuda.synchronize()

    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._event.cuda_event)
