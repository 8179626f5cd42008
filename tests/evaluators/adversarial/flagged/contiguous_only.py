# Reads its input's memory in order, whatever the strides say.
#
# task: gelu
# device: cpu
# class: A5
# expect: correct
# flags: fails_noncontiguous

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(torch.as_strided(x, x.shape, (x.shape[1], 1)))
