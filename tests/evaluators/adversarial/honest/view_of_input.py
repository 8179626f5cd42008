# Its answer is a view of its input, as the task's own is.
#
# task: transpose
# device: cpu
# class: none
# expect: correct
# may: reuses_output_buffer

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.mT
