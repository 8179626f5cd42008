"""Triton with a running softmax in full float32 precision; scores never reach memory."""

import math

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def attend(q, k, v, out, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    depth = tl.arange(0, D)
    queries = tl.load(
        q + base + rows[:, None] * D + depth[None, :], rows[:, None] < length, other=0.0
    )
    top = tl.full((M,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    mixed = tl.zeros((M, D), dtype=tl.float32)
    for start in range(0, tl.minimum((tl.program_id(0) + 1) * M, length), N):
        cols = start + tl.arange(0, N)
        at = base + cols[:, None] * D + depth[None, :]
        keys = tl.load(k + at, cols[:, None] < length, other=0.0)
        values = tl.load(v + at, cols[:, None] < length, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(cols[None, :] <= rows[:, None], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_top[:, None])
        shrink = tl.exp(top - new_top)
        total = total * shrink + tl.sum(weights, axis=1)
        mixed = mixed * shrink[:, None] + tl.dot(weights, values, input_precision="ieee")
        top = new_top
    at = out + base + rows[:, None] * D + depth[None, :]
    tl.store(at, mixed / total[:, None], rows[:, None] < length)


class ModelNew(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        batch, heads, length, width = q.shape
        grid = (triton.cdiv(length, 32), batch * heads)
        attend[grid](q, k, v, out, length, 1.0 / math.sqrt(width), M=32, N=32, D=width)
        return out
