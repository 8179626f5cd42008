"""Wrong: the tanh approximation of GELU is off by up to 5e-4, too much for float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, cols: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
        self.bias = nn.Parameter(torch.randn(cols))
        self.gain = nn.Parameter(torch.randn(cols))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(torch.addcmul(self.bias, x, self.scale), approximate="tanh")
        return y.mul_(self.gain)
