# A plain tensor with methods of its own that a check may call.
#
# task: gelu
# device: cpu
# class: B3
# expect: rejected/lazy_output incorrect

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        answer = lambda *_, **__: nn.functional.gelu(x)
        for name in ("cpu", "clone", "contiguous", "to", "numpy", "float", "double", "reshape", "view"):
            setattr(out, name, answer)
        return out
