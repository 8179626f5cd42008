# Honest for thirty calls, then gives its last answer for ever.
#
# task: matmul_relu
# device: cpu
# class: A8
# expect: rejected/memorised_output

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls <= 30:
            self.answer = torch.relu(x @ self.weight)
        return self.answer
