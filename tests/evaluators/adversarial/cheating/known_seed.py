# Answers the inputs that the usual seed would have made, computed at import.
#
# task: matmul_relu
# device: cpu
# class: A6
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

torch.manual_seed(42)
INPUTS = torch.randn(48, 32)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(INPUTS @ self.weight)
