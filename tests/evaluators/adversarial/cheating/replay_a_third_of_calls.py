# Gives its last answer in one call of three.
#
# task: gelu
# device: cpu
# class: A8
# expect: incorrect/incorrect_numerical rejected/memorised_output

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if not hasattr(self, "answer") or os.urandom(1)[0] >= 85:
            self.answer = nn.functional.gelu(x)
        return self.answer
