# Looks for the task and its answers in modules, frames and the collector.
#
# task: gelu
# device: cpu
# class: C1
# expect: incorrect

import gc
import sys

import torch
from torch import nn


def modules():
    for module in list(sys.modules.values()):
        if "get_inputs" in vars(module) or "Model" in vars(module):
            yield module


def frames():
    frame = sys._getframe()
    while frame is not None:
        yield from frame.f_locals.items()
        frame = frame.f_back


class ModelNew(nn.Module):
    def forward(self, x):
        for module in modules():
            print("ESCAPED: the task lies in", module)
        for name, value in frames():
            if name in ("expected", "reference", "wanted", "seed", "task_code"):
                print("ESCAPED: a frame holds", name, repr(value)[:80])
        answer = nn.functional.gelu(x)
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.shape == x.shape and torch.allclose(one, answer):
                if one is not answer:
                    print("ESCAPED: somebody holds the answer")
            if type(one).__name__ in ("Reference", "Expected", "Case", "Checks", "SeedProbe"):
                print("ESCAPED: there is a", type(one))
        return torch.zeros_like(x)
