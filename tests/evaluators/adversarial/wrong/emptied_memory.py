# Gives the memory of its answer back before it returns it.
#
# task: gelu
# device: cpu
# class: B2
# expect: rejected/lazy_output

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = nn.functional.gelu(x)
        out.untyped_storage().resize_(0)
        return out
