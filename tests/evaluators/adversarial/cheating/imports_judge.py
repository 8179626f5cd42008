# Imports the judge's own code in its process and asks it for the answer.
#
# task: gelu
# device: cpu
# class: C1
# expect: incorrect compile_error rejected

import gc

import torch
from torch import nn

from evaluators.references.task import Reference


class ModelNew(nn.Module):
    def forward(self, x):
        for one in gc.get_objects():
            if isinstance(one, Reference):
                print("ESCAPED: a reference is here")
                return one.answer([x]).value
        return torch.zeros_like(x)
