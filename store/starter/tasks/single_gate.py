"""Gate of a mixture with one expert: a softmax over one score, so that the answer is always one."""

import torch
import torch.nn as nn

BATCH = 256
FEATURES = 256
HIDDEN = 512


class Model(nn.Module):
    """(BATCH, FEATURES) to (BATCH, 1); whatever the input, the single gate gets all the weight."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(features, hidden)
        self.score = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.score(torch.tanh(self.expand(x))), dim=1)


def get_inputs() -> list:
    return [torch.randn(BATCH, FEATURES)]


def get_init_inputs() -> list:
    return [FEATURES, HIDDEN]
