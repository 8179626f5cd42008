# C compiled at import and called by address.
#
# task: gelu
# device: cpu
# class: none
# expect: correct
# needs: compiler
# may: fails_infinities

import ctypes
import math
import pathlib
import subprocess

import torch
from torch import nn

SOURCE = """
#include <math.h>
void gelu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
"""
pathlib.Path("gelu.c").write_text(SOURCE)
subprocess.run(["cc", "-O2", "-shared", "-fPIC", "gelu.c", "-o", "gelu.so", "-lm"], check=True)
CODE = ctypes.CDLL("./gelu.so")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        pointers = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()))
        CODE.gelu(*pointers, ctypes.c_long(math.prod(x.shape)))
        return out
