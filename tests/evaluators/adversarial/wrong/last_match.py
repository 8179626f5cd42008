# The last match where the first is asked for: of ones and zeros, ones are no ties.
#
# task: first_match
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, tokens):
        found = (tokens == 4).int().flip(1)
        return tokens.shape[1] - 1 - found.argmax(dim=1)
