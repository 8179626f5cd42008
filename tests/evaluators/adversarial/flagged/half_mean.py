# Means over numbers of half precision: of so many the errors average out.
#
# task: large_mean
# device: cpu
# class: E4
# expect: correct
# flags: precision_below_policy
# may: fails_random_signs fails_uneven fails_signed fails_ties fails_scaled fails_shifted fails_constants fails_infinities fails_positive

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.half().float().mean(dim=1)
