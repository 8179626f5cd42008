# Ignores scale and shift, which are one and zero until somebody trains them.
#
# task: layer_norm
# device: cpu
# class: A4
# expect: correct
# flags: fails_perturbed_parameters

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:])
