# A Triton kernel that sums blocks and forgets to carry between them.
#
# task: cumsum
# device: cuda
# class: none
# expect: incorrect crash
# needs: triton

import triton
import triton.language as tl

import torch
from torch import nn


@triton.jit
def sums(x_pointer, y_pointer, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_pointer + row * n + at, mask=at < n, other=0.0)
        tl.store(y_pointer + row * n + at, tl.cumsum(x, 0), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sums[(x.shape[0],)](x.contiguous(), out, x.shape[1], BLOCK=128)
        return out
