"""One Triton program per row; the row is read and written once."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x, weight, bias, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask, other=0.0)
    mean = tl.sum(values, axis=0) / cols
    centred = tl.where(mask, values - mean, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / cols + eps)
    y = centred * inverse * tl.load(weight + offsets, mask) + tl.load(bias + offsets, mask)
    tl.store(out + row * cols + offsets, y, mask)


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        normalise[(rows,)](x, self.weight, self.bias, out, cols, self.eps, BLOCK=block)
        return out
