# Every call is just fast enough, all together are not.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/total_timeout timeout/call_timeout
# config: call_s=2 total_s=4

import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        time.sleep(0.6)
        return torch.relu(x @ self.weight)
