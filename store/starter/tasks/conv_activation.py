"""Convolution followed by a smooth activation and a gain per channel."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 4
CHANNELS_IN = 8
CHANNELS_OUT = 16
SIDE = 40


class Model(nn.Module):
    """y * tanh(softplus(y)) * gain with y a 3 x 3 convolution of images (BATCH, C, SIDE, SIDE)."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y * torch.tanh(F.softplus(y)) * self.gain


def get_inputs() -> list:
    return [3.0 * torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE)]


def get_init_inputs() -> list:
    return [CHANNELS_IN, CHANNELS_OUT]
