# Returns an empty answer at once, which a thread fills after a while.
#
# task: gelu
# device: cpu
# class: B2
# expect: incorrect rejected

import threading
import time

import torch
from torch import nn


def fill(x, out):
    time.sleep(0.05)
    out.copy_(nn.functional.gelu(x))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        threading.Thread(target=fill, args=(x.clone(), out)).start()
        return out
