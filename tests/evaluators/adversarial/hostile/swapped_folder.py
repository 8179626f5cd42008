# Deletes its folder and tries to put a link to another one in its place.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import glob
import os
import shutil

import torch
from torch import nn

own = os.getcwd()
shutil.rmtree(own, ignore_errors=True)
for folder in [*glob.glob("/tmp/flywheel-canary-*"), "/tmp"]:
    try:
        os.symlink(folder, own)
    except OSError as error:
        print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
