"""One Triton program per row; the row is read once and stays in registers."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def deviation(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask, other=0.0)
    mean = tl.sum(values, axis=0) / cols
    distance = tl.where(mask, tl.abs(values - mean), 0.0)
    tl.store(out + row, tl.sum(distance, axis=0) / cols)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty(rows, device=x.device)
        deviation[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out
