# A thread ends the process while it is called.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash/early_exit

import os
import threading
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        threading.Timer(0.1, os._exit, (0,)).start()
        time.sleep(60)
