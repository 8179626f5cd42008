# Rounds both factors to half precision; with positive inputs the errors average out.
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
        return a.half().float() @ b.half().float()
