# Swaps the code object of the worker's timing function.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected

import sys

import torch
from torch import nn

WORKER = sys.modules["evaluators.worker.loop"].CandidateLoop


def time(self, slots, variant=None, copies=False, alone=False):
    self._outputs = [self._module(*self._slots[slot][0]) for slot in slots]
    return {"elapsed_ns": 1000 * len(slots), "places": locate(self._outputs)}


WORKER.time.__code__ = time.__code__


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
