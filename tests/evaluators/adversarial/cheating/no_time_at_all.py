# Reports that calls take no time.
#
# task: gelu
# device: cpu
# class: D10
# expect: rejected/timer_mismatch rejected/malformed_output

import sys

import torch
from torch import nn

WORKER = sys.modules["evaluators.worker.loop"].CandidateLoop
TIME = WORKER.time
WORKER.time = lambda self, *args, **options: {**TIME(self, *args, **options), "elapsed_ns": 0}


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
