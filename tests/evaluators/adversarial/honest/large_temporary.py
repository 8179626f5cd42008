# Needs two hundred megabytes of memory while it works.
#
# task: tiny_mean
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        workspace = torch.empty(50 << 20)
        workspace[: x.numel()] = x.reshape(-1)
        return workspace[: x.numel()].view(x.shape).mean(dim=1) * 1e-4
