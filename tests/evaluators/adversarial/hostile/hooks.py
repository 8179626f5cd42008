# Hooks tracing, profiling, imports, exceptions, threads, and the collector.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct rejected crash

import builtins
import gc
import sys
import threading

import torch
from torch import nn

SEEN = []


def hook(*args):
    SEEN.append(args)
    del SEEN[:-4]
    return None


class Finder:
    def find_spec(self, name, path=None, target=None):
        return None


sys.settrace(hook)
sys.setprofile(hook)
threading.settrace(hook)
sys.meta_path.insert(0, Finder())
sys.excepthook = hook
sys.unraisablehook = hook
gc.callbacks.append(hook)
builtins.print = hook


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
