# Adds to a sum that begins with whatever its memory holds.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/nan incorrect/incorrect_numerical incorrect/nondeterministic

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        largest = torch.full((x.shape[0], 1), float("-inf"))
        total = torch.empty(x.shape[0], 1)
        for block in x.split(64, dim=1):
            new = torch.maximum(largest, block.amax(dim=1, keepdim=True))
            total = total * torch.exp(largest - new) + torch.exp(block - new).sum(dim=1, keepdim=True)
            largest = new
        return torch.exp(x - largest) / total
