# Patches the worker that serves it, and computes when an answer is fetched.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected incorrect

import sys

import torch
from torch import nn

WORKER = sys.modules["evaluators.worker.loop"].CandidateLoop
OUTPUT = WORKER.output
LAST = []


def late(self, back):
    if back == 0 and LAST:
        self._outputs[0] = nn.functional.gelu(LAST.pop())
    return OUTPUT(self, back)


WORKER.output = late


class ModelNew(nn.Module):
    def forward(self, x):
        LAST[:] = [x]
        return torch.empty_like(x)
