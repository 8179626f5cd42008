# Takes and touches memory until there is none.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/out_of_memory crash/signal
# config: memory_gb=0.75

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        held = []
        while True:
            held.append(torch.ones(8 << 20))
