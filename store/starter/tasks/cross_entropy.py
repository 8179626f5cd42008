"""Mean cross-entropy of logits against class numbers, through the log-probabilities."""

import torch
import torch.nn as nn

BATCH = 512
CLASSES = 1000


class Model(nn.Module):
    """Logits (BATCH, CLASSES) and targets (BATCH,) to one number."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        log_probabilities = torch.log_softmax(logits, dim=1)
        return -log_probabilities.gather(1, targets.unsqueeze(1)).mean()


def get_inputs() -> list:
    return [3.0 * torch.randn(BATCH, CLASSES), torch.randint(0, CLASSES, (BATCH,))]


def get_init_inputs() -> list:
    return []
