# Leaves a long kernel running on another stream, which slows whoever comes next.
#
# task: gelu
# device: cuda
# class: D7
# expect: rejected correct
# may: baseline_drift
# most: 1.5

import torch
from torch import nn

STREAM = torch.cuda.Stream()


class ModelNew(nn.Module):
    def forward(self, x):
        out = nn.functional.gelu(x)
        with torch.cuda.stream(STREAM):
            torch.cuda._sleep(20_000_000)
        return out
