# Compiles for longer than an import may take, and then takes some time of its own.
#
# task: gelu
# device: cpu
# class: none
# expect: correct
# config: import_s=3 build_s=30

import subprocess
import time

from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        subprocess.run(["sleep", "3.2"], check=True)  # stands for a compiler
        time.sleep(0.5)

    def forward(self, x):
        return nn.functional.gelu(x)
