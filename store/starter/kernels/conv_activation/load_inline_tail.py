"""C++ tail built by load_inline without torch's headers; the convolution stays with torch."""

import ctypes
import os
import sysconfig
import tempfile

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <math.h>
extern "C" void tail(float* __restrict y, const float* gain, long images, long channels,
                     long size) {
  for (long i = 0; i < images * channels; ++i, y += size) {
    const float factor = gain[i % channels];
    for (long p = 0; p < size; ++p) {
      const float e = expf(y[p] < 20.0f ? y[p] : 20.0f), n = e * (e + 2.0f);
      y[p] *= factor * n / (n + 2.0f);
    }
  }
}
"""
FLAGS = ["-O3", "-march=native", "-ffast-math"]

os.environ["PATH"] += os.pathsep + sysconfig.get_path("scripts")  # ninja of the environment
with tempfile.TemporaryDirectory() as folder:
    load_inline(
        "starter_tail",
        SOURCE,
        extra_cflags=FLAGS,
        build_directory=folder,
        no_implicit_headers=True,
        is_python_module=False,
    )
    TAIL = ctypes.CDLL(os.path.join(folder, "starter_tail.so")).tail
TAIL.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 3
TAIL.restype = None


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).contiguous()
        images, channels, height, width = y.shape
        TAIL(y.data_ptr(), self.gain.data_ptr(), images, channels, height * width)
        return y
