"""One Triton program per row with a reversed scan in registers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask, other=0.0)
    tl.store(out + row * cols + offsets, tl.cumsum(values, axis=0, reverse=True), mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        scan[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
