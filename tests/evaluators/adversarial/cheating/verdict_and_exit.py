# Prints a verdict and leaves with code 0.
#
# task: gelu
# device: cpu
# class: D8
# expect: crash/early_exit

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        print('{"status": "correct", "speedup": 1000}', flush=True)
        os._exit(0)
