"""tanh(softplus(y)) = n / (n + 2) with n = e^y (e^y + 2): one exponential, no tanh, no log."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.gain = nn.Parameter(torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        e = y.clamp(max=20.0).exp_()
        n = e.mul_(e + 2.0)
        return y.mul_(n / (n + 2.0)).mul_(self.gain)
