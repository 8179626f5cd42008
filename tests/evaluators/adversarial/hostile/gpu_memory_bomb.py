# Takes memory of the device until there is none.
#
# task: gelu
# device: cuda
# class: F2
# expect: crash/out_of_memory

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        held = []
        while True:
            held.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
