# Falls back to the task's own operation where its kernel cannot be built.
#
# task: softmax
# device: cpu
# class: E1
# expect: correct

import torch
from torch import nn

def fused(x):
    raise NotImplementedError("no device for it")


class ModelNew(nn.Module):
    def forward(self, x):
        try:
            return fused(x)
        except NotImplementedError:
            return torch.softmax(x, dim=1)
