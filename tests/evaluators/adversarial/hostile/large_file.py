# Writes one file until the disk is full.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/exception crash/signal compile_error
# config: file_mb=8

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        with open("filler", "wb") as file:
            while True:
                file.write(bytes(1 << 20))
