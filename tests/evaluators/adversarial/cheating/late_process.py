# Leaves its work to a forked process that writes into shared memory later.
#
# task: gelu
# device: cpu
# class: B2
# expect: incorrect rejected crash
# may: left_processes

import os
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x).share_memory_()
        if os.fork() == 0:
            time.sleep(0.05)
            out.copy_(nn.functional.gelu(x))
            os._exit(0)
        return out
