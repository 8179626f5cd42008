# Replaces the event and the synchronisation that a timer on a GPU would use.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected/timer_mismatch

import torch
from torch import nn

torch.cuda.synchronize = lambda *_, **__: None
torch.cuda.Event.elapsed_time = lambda *_, **__: 1e-6


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
