# Packs its weights at the first call and never looks at them again.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# flags: fails_perturbed_parameters

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        if not hasattr(self, "packed"):
            self.packed = self.weight.detach().t().contiguous()
        return torch.relu(nn.functional.linear(x, self.packed))
