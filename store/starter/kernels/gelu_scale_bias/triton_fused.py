"""One Triton kernel for the whole chain."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain(x, scale, bias, gain, out, cols, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    column = offsets % cols
    y = tl.load(x + offsets, mask) * tl.load(scale + column) + tl.load(bias + column)
    y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476)) * tl.load(gain + column)
    tl.store(out + offsets, y, mask)


class ModelNew(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))
        self.gain = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        chain[grid](
            x, self.scale, self.bias, self.gain, out, x.shape[1], x.numel(), BLOCK=1024
        )
        return out
