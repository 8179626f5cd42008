# Finds its worker through the collector, and makes it report a tenth of the time.
#
# task: gelu
# device: cpu
# class: D2
# expect: rejected correct
# most: 1.5

import gc

import torch
from torch import nn


def worker():
    return next(one for one in gc.get_objects() if type(one).__name__ == "CandidateLoop")


def hurried(timed):
    def time(self, *args, **options):
        answer = timed(self, *args, **options)
        return {**answer, "elapsed_ns": answer["elapsed_ns"] // 10 + 1}

    return time


class ModelNew(nn.Module):
    def forward(self, x):
        if not hasattr(self, "hurried"):
            self.hurried = True
            kind = type(worker())
            kind.time = hurried(kind.time)
        return nn.functional.gelu(x)
