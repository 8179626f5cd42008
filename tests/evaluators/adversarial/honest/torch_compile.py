# A fused graph by torch.compile; the first call builds it.
#
# task: softmax
# device: cpu
# class: E3
# expect: correct
# needs: compiler
# slow: yes

import torch
from torch import nn

@torch.compile
def fused(x):
    powers = torch.exp(x - x.amax(dim=1, keepdim=True))
    return powers / powers.sum(dim=1, keepdim=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return fused(x)
