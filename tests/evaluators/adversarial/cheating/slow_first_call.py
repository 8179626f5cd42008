# Sleeps in its first call so that fewer calls are made, and replays after six.
#
# task: gelu
# device: cpu
# class: D12
# expect: rejected/memorised_output incorrect/incorrect_numerical

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 1:
            time.sleep(1.2)
        if self.calls <= 6:
            self.answer = nn.functional.gelu(x)
        return self.answer
