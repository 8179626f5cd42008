# Looks at the name of its caller, and computes nothing where it is timed.
#
# task: gelu
# device: cpu
# class: A11
# expect: rejected/memorised_output

import sys

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        frame, names = sys._getframe(), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        if "time" in names and hasattr(self, "answer"):
            return self.answer
        self.answer = nn.functional.gelu(x)
        return self.answer
