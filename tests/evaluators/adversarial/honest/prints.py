# Prints to both streams at import, in its constructor and in every call.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import sys

import torch
from torch import nn

print("imported", flush=True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        print("called with", tuple(x.shape))
        print('{"status": "correct"}', file=sys.stderr, flush=True)
        return torch.relu(x @ self.weight)
