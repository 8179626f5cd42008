"""One Triton program per piece of a row of b."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_rows(a, b, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(b + row * cols + offsets, mask)
    tl.store(out + row * cols + offsets, values * tl.load(a + row), mask)


class ModelNew(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(b)
        rows, cols = b.shape
        scale_rows[(rows, triton.cdiv(cols, 1024))](a, b, out, cols, BLOCK=1024)
        return out
