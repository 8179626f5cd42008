# Takes the inputs to lie below one, as the generator makes them.
#
# task: root
# device: cpu
# class: A5
# expect: correct
# flags: fails_shifted fails_scaled
# may: another_function fails_signed fails_infinities fails_uneven fails_random_signs fails_ties

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.sqrt(x.abs().clamp(max=1.0))
