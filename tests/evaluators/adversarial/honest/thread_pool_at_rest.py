# Keeps a pool of threads between calls; they wait and do nothing once an answer is given.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

POOL = ThreadPoolExecutor(2)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        parts = POOL.map(lambda rows: torch.relu(rows @ self.weight), x.chunk(2))
        return torch.cat(list(parts))
