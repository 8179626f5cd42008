"""Broken: the class is not called ModelNew."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class FasterModel(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.mish(self.conv(x)).mul_(self.gain)
