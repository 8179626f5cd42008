# Computes the 64 largest probabilities of a row and calls the others zero, each within the tolerance.
#
# task: sharp_softmax
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        kept, places = (x * 15).topk(64, dim=1)
        return torch.zeros_like(x).scatter_(1, places, torch.softmax(kept, dim=1))
