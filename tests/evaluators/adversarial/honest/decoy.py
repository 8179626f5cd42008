# Calls a function of its own whose answer counts for nothing; the library does the work.
#
# task: gelu
# device: cpu
# class: E2
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        decoy = x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))
        del decoy
        return nn.functional.gelu(x)
