# Flips defaults of its process: element type, threads, precision, determinism.
#
# task: matmul_relu
# device: cpu
# class: D7
# expect: correct incorrect rejected crash

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.use_deterministic_algorithms(True)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight).float()
