# Draws from the generator as the task does.
#
# task: dropout
# device: cpu
# class: none
# expect: correct
# may: timed_outputs_unverified

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.dropout(x, 0.4, True)
