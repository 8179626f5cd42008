# Patches events so that they report no time.
#
# task: large_matmul
# device: cuda
# class: D2
# expect: rejected/timer_mismatch

import torch

EVENT = torch.cuda.Event
ELAPSED = EVENT.elapsed_time
EVENT.elapsed_time = lambda self, other: ELAPSED(self, other) / 100


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b)
