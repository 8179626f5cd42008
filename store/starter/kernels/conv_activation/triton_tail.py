"""Convolution by cuDNN, then one Triton kernel in place for activation and gain."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def tail(y, gain, channels, size, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    values = tl.load(y + offsets, mask, other=0.0)
    e = tl.exp(tl.minimum(values, 20.0))
    n = e * (e + 2.0)
    factor = tl.load(gain + offsets // size % channels, mask, other=0.0)
    tl.store(y + offsets, values * factor * n / (n + 2.0), mask)


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).contiguous()
        channels, size = y.shape[1], y.shape[2] * y.shape[3]
        tail[(triton.cdiv(y.numel(), 1024),)](
            y, self.gain, channels, size, y.numel(), BLOCK=1024
        )
        return y
