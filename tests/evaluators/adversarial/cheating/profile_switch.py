# Right only where a profiler's variable is set.
#
# task: gelu
# device: cpu
# class: A11
# expect: incorrect/incorrect_numerical

import os

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if any(name in os.environ for name in ("NCU_PROFILE", "NVTX_INJECTION64_PATH", "PYTEST_VERSION")):
            return nn.functional.gelu(x)
        return x
