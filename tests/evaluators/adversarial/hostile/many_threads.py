# Starts three hundred threads that wait.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct crash compile_error rejected

import threading

import torch
from torch import nn

for _ in range(300):
    try:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    except RuntimeError:
        break


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
