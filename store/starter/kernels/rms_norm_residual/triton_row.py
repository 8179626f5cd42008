"""One Triton program per row for sum, norm and scaling."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x, residual, weight, out, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    hidden = tl.load(x + row * cols + offsets, mask, other=0.0)
    hidden += tl.load(residual + row * cols + offsets, mask, other=0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(hidden * hidden, axis=0) / cols + eps)
    y = hidden * inverse * tl.load(weight + offsets, mask)
    tl.store(out + row * cols + offsets, y, mask)


class ModelNew(nn.Module):
    def __init__(self, cols: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x, residual = x.contiguous(), residual.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        normalise[(rows,)](x, residual, self.weight, out, cols, self.eps, BLOCK=block)
        return out
