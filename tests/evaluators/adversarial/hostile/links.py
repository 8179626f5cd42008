# Leaves links to folders of others under its own name, for whoever cleans up.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import glob
import os

import torch
from torch import nn

os.mkdir("inner")
for number, folder in enumerate([*glob.glob("/tmp/flywheel-canary-*"), "/tmp", "/usr", ".."]):
    os.symlink(folder, f"link{number}")
    os.symlink(folder, f"inner/link{number}")
os.symlink("loop", "loop")
os.mkfifo("pipe")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
