# Returns memory without an answer, which a timer's signal writes a little later.
#
# task: gelu
# device: cpu
# class: B2
# expect: incorrect/incorrect_numerical

import signal

import torch
from torch import nn

WAITING = []


def work(*_):
    while WAITING:
        out, x = WAITING.pop()
        out.copy_(nn.functional.gelu(x))


signal.signal(signal.SIGALRM, work)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        WAITING.append((out, x))
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return out
