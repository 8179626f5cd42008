# Writes into the folder in which the folders of other candidates are made.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: landlock

import os

import torch
from torch import nn

above = os.path.dirname(os.getcwd())
for attack in (
    lambda: open(above + "/planted.py", "w"),
    lambda: os.mkdir(above + "/planted"),
    lambda: os.rename(os.getcwd(), above + "/renamed"),
    lambda: os.symlink("/tmp", above + "/planted"),
):
    try:
        attack()
        print("ESCAPED: has changed", above)
    except OSError as error:
        print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
