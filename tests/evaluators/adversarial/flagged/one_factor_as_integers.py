# Rounds one factor of a bfloat16 task to whole numbers of eight bits, scaled by blocks of 32 terms.
#
# task: bfloat16_product
# device: cpu
# class: E4
# expect: correct
# flags: precision_below_policy
# may: fails_uneven fails_zeros fails_scaled fails_random_signs fails_infinities

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        blocks = b.float().view(-1, 32, b.shape[1])
        scale = blocks.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
        return (a.float() @ (torch.round(blocks / scale) * scale).view(b.shape)).bfloat16()
