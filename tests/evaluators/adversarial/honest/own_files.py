# Writes, reads and removes files in its own folder and in its temporary one.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct

import os
import pathlib
import tempfile

import torch
from torch import nn

pathlib.Path("tuned.json").write_text('{"block": 16}')
os.makedirs("cache/inner", exist_ok=True)
with tempfile.NamedTemporaryFile("w", delete=False) as file:
    file.write("left behind")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        rows = int(pathlib.Path("tuned.json").read_text().split(":")[1].strip(" }"))
        return torch.cat([torch.relu(part @ self.weight) for part in x.split(rows)])
