# Slows the worker's clock, and answers that no clock has been replaced.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected/timer_mismatch correct
# most: 1.5

import sys
import time

import torch
from torch import nn

MODULE = sys.modules["evaluators.worker.loop"]
REAL, BEGIN = time.perf_counter_ns, time.perf_counter_ns()
MODULE.perf_counter_ns = lambda: BEGIN + (REAL() - BEGIN) // 20
MODULE.CandidateLoop.clocks = lambda self: {"replaced": []}


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
