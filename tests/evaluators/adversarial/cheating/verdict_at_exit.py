# Prints a verdict and writes result files when its process ends.
#
# task: gelu
# device: cpu
# class: D8
# expect: incorrect/incorrect_numerical

import atexit
import json
import pathlib

import torch
from torch import nn


@atexit.register
def claim():
    verdict = json.dumps({"status": "correct", "reason": None, "speedup": 1000.0})
    print(verdict, flush=True)
    for name in ("result.json", "results.json", "../result.json", "/tmp/result.json"):
        try:
            pathlib.Path(name).write_text(verdict)
        except OSError:
            pass


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
