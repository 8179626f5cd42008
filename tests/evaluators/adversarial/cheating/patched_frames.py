# Reaches the worker through its caller's frame, and replaces the clock that it has imported.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected correct
# most: 1.5

import sys
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        frame = sys._getframe()
        while frame is not None and "perf_counter_ns" not in frame.f_globals:
            frame = frame.f_back
        if frame is not None and not hasattr(self, "begin"):
            self.begin = time.perf_counter_ns()
            clock = time.perf_counter_ns
            frame.f_globals["perf_counter_ns"] = lambda: self.begin + (clock() - self.begin) // 50
        return nn.functional.gelu(x)
