# Six threads go on working, so that whatever is timed beside it is slow.
#
# task: gelu
# device: cpu
# class: B2
# expect: rejected/timer_mismatch correct
# most: 1.3

import threading

import torch
from torch import nn


def spin():
    while True:
        torch.ones(100_000).exp_()


for _ in range(6):
    threading.Thread(target=spin, daemon=True).start()


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
