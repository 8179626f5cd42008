# Two threads take a half of the rows each and are joined before it returns.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# may: more_threads

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        half = x.shape[0] // 2
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda rows: torch.relu(rows @ self.weight), (x[:half], x[half:])))
        return torch.cat(parts)
