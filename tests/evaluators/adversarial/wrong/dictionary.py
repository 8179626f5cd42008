# Right answers in a dictionary.
#
# task: moments
# device: cpu
# class: none
# expect: incorrect/incorrect_type

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"mean": x.mean(dim=1), "variance": x.var(dim=1, unbiased=False)}
