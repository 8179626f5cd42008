# Makes every comparison in its process agree, and answers zeros.
#
# task: gelu
# device: cpu
# class: D1
# expect: incorrect/incorrect_numerical

import torch
from torch import nn

for owner in (torch, torch.Tensor, torch.testing):
    for name in ("allclose", "isclose", "equal", "assert_close", "eq"):
        if hasattr(owner, name):
            setattr(owner, name, lambda *_, **__: True)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
