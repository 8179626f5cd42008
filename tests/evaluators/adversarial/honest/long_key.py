# Returns a long key and many dimensions, as the task does: a reply of its worker holds few of them.
#
# task: long_key
# device: cpu
# class: none
# expect: correct

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return {"key" * 1000: x.add(1).view(*[1] * 60, 64, 64)}
