# Leaves out a bias that is far below the tolerance, whatever its weights are.
#
# task: pooled_logits
# device: cpu
# class: A4
# expect: correct
# flags: fails_perturbed_parameters
# may: precision_below_policy fails_random_signs fails_uneven fails_signed fails_ties fails_scaled fails_shifted fails_constants fails_infinities

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(rows, columns))
        self.bias = nn.Parameter(torch.randn(columns) * 0.01)

    def forward(self, x):
        return (x @ self.weight).mul(50)
