# Kills its parent in plain words, which is refused before it is run.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: rejected/forbidden_code

import os
import signal

import torch
from torch import nn

os.kill(os.getppid(), signal.SIGKILL)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
