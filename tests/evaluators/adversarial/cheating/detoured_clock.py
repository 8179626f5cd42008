# Overwrites the C library's clock in memory, so that every caller sees time pass slowly.
#
# task: gelu
# device: cpu
# class: D3
# expect: rejected/timer_mismatch correct crash
# needs: x86_64
# most: 1.5

import ctypes

import torch
from torch import nn

C = ctypes.CDLL(None)
CLOCK = ctypes.cast(C.clock_gettime, ctypes.c_void_p).value
BEGIN = {}


class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_int64), ("ns", ctypes.c_int64)]


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(Time))
def slow(which, at):
    C.syscall(ctypes.c_long(228), ctypes.c_long(which), at)
    now = at[0].s * 10**9 + at[0].ns
    begin = BEGIN.setdefault(which, now)
    at[0].s, at[0].ns = divmod(begin + (now - begin) // 20, 10**9)
    return 0


SLOW = ctypes.cast(slow, ctypes.c_void_p).value
C.mprotect(ctypes.c_void_p(CLOCK & ~4095), ctypes.c_size_t(8192), 7)
ctypes.memmove(CLOCK, b"\x48\xb8" + SLOW.to_bytes(8, "little") + b"\xff\xe0", 12)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
