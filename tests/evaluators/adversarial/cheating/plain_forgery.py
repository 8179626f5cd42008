# Writes to a guessed descriptor in plain words, which is refused before it is run.
#
# task: gelu
# device: cpu
# class: D8
# expect: rejected/forbidden_code

import os

import torch
from torch import nn

os.write(5, b'{"status": "correct"}')


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
