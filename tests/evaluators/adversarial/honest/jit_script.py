# A scripted function with a fused expression.
#
# task: layer_norm
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn

@torch.jit.script
def normalised(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt((centred * centred).mean(dim=-1, keepdim=True) + eps) * weight + bias


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return normalised(x, self.norm.weight, self.norm.bias, self.norm.eps)
