# Looks for folders of others in /tmp, reads, writes and deletes in them.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: landlock

import glob
import os
import shutil

import torch
from torch import nn

for folder in glob.glob("/tmp/flywheel-canary-*"):
    for attack in (
        lambda: open(folder + "/written", "w").write("x"),
        lambda: open(folder + "/canary", "a").write("x"),
        lambda: print("ESCAPED: reads", open(folder + "/canary").read()),
        lambda: os.unlink(folder + "/canary"),
        lambda: os.rename(folder + "/canary", "canary"),
        lambda: os.link(folder + "/canary", "canary"),
        lambda: os.chmod(folder, 0o777),
        lambda: shutil.rmtree(folder),
    ):
        try:
            attack()
        except OSError as error:
            print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
