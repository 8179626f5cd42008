# Takes the inputs to be positive, as the generator makes them.
#
# task: root
# device: cpu
# class: A5
# expect: correct
# flags: fails_signed
# may: another_function fails_random_signs

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)
