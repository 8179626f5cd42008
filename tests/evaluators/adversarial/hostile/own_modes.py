# Changes modes and times of its own files, as compilers and installers do.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# needs: own_root

import os
import shutil
import subprocess

import torch
from torch import nn

with open("one.sh", "w") as file:
    file.write("exit 7\n")
os.chmod("one.sh", 0o700)
os.utime("one.sh", (1, 1))
shutil.copy2("one.sh", "two.sh")
assert os.stat("two.sh").st_mtime == 1
assert os.stat("two.sh").st_mode & 0o777 == 0o700
assert subprocess.run(["sh", "./two.sh"]).returncode == 7


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
