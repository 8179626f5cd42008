"""Order among all streams of a process, those that a candidate made behind torch's back included.

What is timed has to begin after the flushes ahead of it and to end with the last of its work.
Events on the current stream say nothing of other streams, which may be at work beside the flushes
and after the end. The driver knows them all: since CUDA 12.5 (driver 555) it records and waits for
events of a whole context. With an older one the host waits: nothing escapes there either, but what
is timed of a short call is its launches.
"""

from __future__ import annotations

import ctypes

import torch

from evaluators.memory import cuda_driver


class Streams:
    """The streams of this process on its current device."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event()
        self._event.record()  # makes it, and the device's context current
        self._context = ctypes.c_void_p()
        cuda_driver.call("cuCtxGetCurrent", ctypes.byref(self._context))
        self.knows_all = cuda_driver.has_function("cuCtxWaitEvent")

    def hold(self) -> None:
        """Let whatever is launched from here on wait for what the current stream has been given."""
        if self.knows_all:
            self._event.record()
            cuda_driver.call("cuCtxWaitEvent", self._context, self._handle())
        else:
            torch.cuda.synchronize()

    def join(self) -> None:
        """Let the current stream wait for whatever has been launched on any stream."""
        if self.knows_all:
            cuda_driver.call("cuCtxRecordEvent", self._context, self._handle())
            self._event.wait()
        else:
            torch.cuda.synchronize()

    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._event.cuda_event)
