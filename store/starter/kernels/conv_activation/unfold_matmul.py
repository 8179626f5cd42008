"""Convolution as one matrix product over unfolded patches: nine times the memory."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(x, kernel_size=3, padding=1)
        y = self.conv.weight.flatten(1) @ patches + self.conv.bias.unsqueeze(1)
        return F.mish(y).view(x.shape[0], -1, *x.shape[2:]) * self.gain
