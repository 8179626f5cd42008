# Works in place on two buffers of its own by turns, so that an answer outlives the next call.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))
        self.buffers_by_turn = [torch.empty(48, columns), torch.empty(48, columns)]

    def forward(self, x):
        self.buffers_by_turn.reverse()
        out = self.buffers_by_turn[0]
        torch.mm(x, self.weight, out=out)
        return out.relu_()
