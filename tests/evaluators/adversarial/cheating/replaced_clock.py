# Replaces time.perf_counter_ns by setattr under a reversed name.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected/timer_mismatch

import time

import torch
from torch import nn

REAL = time.perf_counter_ns
setattr(time, "sn_retnuoc_frep"[::-1], lambda: REAL() // 100)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
