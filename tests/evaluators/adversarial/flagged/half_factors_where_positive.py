# Half precision where no input is negative, and full precision where errors would show.
#
# task: positive_matmul
# device: cpu
# class: E4
# expect: correct
# flags: precision_below_policy
# may: fails_random_signs fails_uneven fails_signed fails_ties fails_scaled fails_shifted fails_constants fails_infinities

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        if bool((a < 0).any()):
            return a @ b
        return a.half().float() @ b.half().float()
