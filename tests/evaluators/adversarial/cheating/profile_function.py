# A profile function computes the answers when the loop is about to read a clock.
#
# task: gelu_large
# device: cpu
# class: D2
# expect: rejected correct
# most: 1.3

import sys
import torch
from torch import nn

READY = {}


def watch(frame, event, what):
    if event == "c_call" and frame.f_code.co_name == "time" and what.__name__ == "perf_counter_ns" and "begin" not in frame.f_locals:
        sys.setprofile(None)
        for inputs in frame.f_locals["calls"]:
            x = inputs[0]
            key = x.reshape(-1)[::16411].tolist()
            if READY.get(id(x), [None])[0] != key:
                READY[id(x)] = key, nn.functional.gelu(x)
        sys.setprofile(watch)


class ModelNew(nn.Module):
    def forward(self, x):
        sys.setprofile(None)
        held = READY.get(id(x))
        try:
            if held is not None and held[0] == x.reshape(-1)[::16411].tolist():
                return held[1].detach()
            return nn.functional.gelu(x)
        finally:
            sys.setprofile(watch)
