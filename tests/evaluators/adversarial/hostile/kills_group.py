# Kills its own process group.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/signal

import os
import signal

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        getattr(os, bytes.fromhex("6b696c6c7067").decode())(os.getpgrp(), signal.SIGKILL)
