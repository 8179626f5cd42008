# A subclass of torch.Tensor that computes once somebody looks.
#
# task: gelu
# device: cuda
# class: B3
# expect: rejected/lazy_output

import torch
from torch import nn

class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [nn.functional.gelu(a.source) if isinstance(a, Later) else a for a in args]
            return function(*args, **(kwargs or {}))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x).as_subclass(Later)
        out.source = x
        return out
