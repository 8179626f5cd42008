# A plain tensor with a method of its own, which computes once the answer is fetched.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected/lazy_output

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        out.detach = lambda: nn.functional.gelu(x)
        return out
