# Replaces its process by another program that says all is well.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/early_exit

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        os.execv("/bin/echo", ["echo", '{"status": "correct"}'])
