"""Takes the exponential of log_softmax: stable, but one more pass than softmax."""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.log_softmax(x / self.temperature, dim=-1))
