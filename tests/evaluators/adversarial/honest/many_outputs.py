# Returns as many small tensors as the task does: few calls' outputs fit one reply of its worker.
#
# task: many_outputs
# device: cpu
# class: none
# expect: correct

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.add(1).split(1)
