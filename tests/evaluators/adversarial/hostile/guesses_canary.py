# Writes over files of the system, of Python and of the judge.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: landlock

import os
import pathlib
import sys

import torch
from torch import nn

import evaluators.worker.loop

for path in (
    pathlib.Path(evaluators.worker.loop.__file__).with_name("flywheel_was_here.py"),
    pathlib.Path(torch.__file__).with_name("flywheel_was_here.py"),
    pathlib.Path(sys.prefix) / "flywheel_was_here",
    pathlib.Path("/tmp/flywheel_was_here"),
    pathlib.Path("/var/tmp/flywheel_was_here"),
    pathlib.Path("/etc/flywheel_was_here"),
    pathlib.Path("/usr/local/bin/flywheel_was_here"),
    pathlib.Path(os.path.expanduser("~root")) / "flywheel_was_here",
    pathlib.Path("..") / "flywheel_was_here",
):
    try:
        path.write_text("x")
        print("ESCAPED: has written", path)
        path.unlink()
    except OSError as error:
        print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
