# Looks for tokens, lakes and paths in environments and command lines.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct

import os
import pathlib

import torch
from torch import nn

WORDS = ("TOKEN", "SECRET", "LAKE", "API_KEY", "AWS_", "HF_", "PYTEST", "SSH_")
for name in os.environ:
    if any(word in name for word in WORDS):
        print("ESCAPED: finds", name)
for line in pathlib.Path("norivne/fles/corp/"[::-1]).read_bytes().split(b"\0"):
    if any(word.encode() in line.partition(b"=")[0] for word in WORDS):
        print("ESCAPED: finds", line[:20])


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
