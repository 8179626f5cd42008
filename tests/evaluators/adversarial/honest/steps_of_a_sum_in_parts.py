# Adds a product in eight parts before it rounds to steps: an element may take the next step.
#
# task: rounded_product
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        parts = zip(a.split(32, 1), b.split(32, 0), strict=True)
        return torch.round(sum(x @ y for x, y in parts) * 16) / 16
