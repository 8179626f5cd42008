# Replays when calls come in quick succession, as they do inside a timed sample.
#
# task: gelu
# device: cpu
# class: A8
# expect: rejected/memorised_output rejected/timer_mismatch correct
# most: 1.6
# config: timing_s=1.0

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        now = time.perf_counter()
        quick = now - getattr(self, "ended", 0.0) < 1e-4
        if not quick or not hasattr(self, "answer"):
            self.answer = nn.functional.gelu(x)
        self.ended = time.perf_counter()
        return self.answer
