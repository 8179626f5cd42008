# Writes a verdict and timings to every open descriptor.
#
# task: gelu
# device: cpu
# class: D8
# expect: rejected/malformed_output

import json
import os

import torch
from torch import nn

FORGED = {"status": "correct", "number": "0", "elapsed_ns": 1, "odd": None, "speedup": 1000}
for fd in range(256):
    try:
        getattr(os, bytes.fromhex("7772697465").decode())(fd, json.dumps(FORGED).encode())
    except OSError:
        pass


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
