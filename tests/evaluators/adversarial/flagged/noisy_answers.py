# Adds noise far below the tolerance: the same inputs give answers that differ.
#
# task: gelu
# device: cpu
# class: F3
# expect: correct
# flags: nondeterministic precision_below_policy
# may: fails_uneven

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x) + 1e-5 * torch.rand_like(x)
