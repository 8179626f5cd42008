# A table of answers made in the constructor for inputs that it expects.
#
# task: gelu
# device: cpu
# class: B4
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.answers = []
        for seed in range(64):
            torch.manual_seed(seed)
            self.answers.append(nn.functional.gelu(torch.randn(256, 512)))

    def forward(self, x):
        return self.answers.pop(0) if self.answers else torch.zeros_like(x)
