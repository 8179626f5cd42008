# Honest for a fifth of a second, less than any judgement takes, then gives its last answer for ever.
#
# task: gelu
# device: cpu
# class: A8
# expect: rejected/memorised_output incorrect/incorrect_numerical

import time

import torch
from torch import nn

BEGAN = []


class ModelNew(nn.Module):
    def forward(self, x):
        BEGAN.append(time.monotonic())
        if BEGAN[-1] - BEGAN[0] < 0.2:
            self.answer = nn.functional.gelu(x)
        return self.answer
