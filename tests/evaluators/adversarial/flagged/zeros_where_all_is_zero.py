# Zeros where the task's answer is always zero: the task is weak, and the row says so.
#
# task: always_zero
# device: cpu
# class: A3
# expect: correct
# flags: weak_task
# may: fails_nan

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
