# An exponential of its own, a few units in the last place off, whose smallest answers are flushed to zero.
#
# task: importance
# device: cpu
# class: none
# expect: correct
# may: fails_scaled fails_infinities fails_nan

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x = (4 * x - 1).clamp(-126, 128)
        whole = torch.round(x * 1.44269504)
        rest = x - whole * 0.693359375 + whole * 2.12194440e-4
        power = torch.ones_like(x)
        for k in range(7, 0, -1):
            power = power * rest / k + 1
        return torch.where(x < -87, torch.zeros_like(x), torch.ldexp(power, whole.int()))
