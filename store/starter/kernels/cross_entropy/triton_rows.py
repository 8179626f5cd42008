"""One Triton program per row gives the row's loss; torch takes the mean."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_loss(logits, targets, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(logits + row * cols + offsets, offsets < cols, other=float("-inf"))
    top = tl.max(values, axis=0)
    total = tl.sum(tl.exp(values - top), axis=0)
    picked = tl.load(logits + row * cols + tl.load(targets + row))
    tl.store(out + row, tl.log(total) + top - picked)


class ModelNew(nn.Module):
    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits, targets = logits.contiguous(), targets.contiguous()
        rows, cols = logits.shape
        out = torch.empty(rows, device=logits.device)
        row_loss[(rows,)](logits, targets, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out.mean()
