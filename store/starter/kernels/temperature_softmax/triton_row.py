"""One Triton program per row; the row is read and written once."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax(x, out, cols, inverse, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x + row * cols + offsets, mask, other=float("-inf"))
    weights = tl.exp((values - tl.max(values, axis=0)) * inverse)
    tl.store(out + row * cols + offsets, weights / tl.sum(weights, axis=0), mask)


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        block = triton.next_power_of_2(cols)
        softmax[(rows,)](x, out, cols, 1.0 / self.temperature, BLOCK=block)
        return out
