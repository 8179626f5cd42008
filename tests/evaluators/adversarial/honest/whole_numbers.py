# A mask and whole numbers by other operations.
#
# task: gates
# device: cpu
# class: none
# expect: correct

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        scaled = x * 8
        down = torch.where(scaled < scaled.trunc(), scaled.trunc() - 1, scaled.trunc())
        return torch.gt(x, self.threshold), down.int()
