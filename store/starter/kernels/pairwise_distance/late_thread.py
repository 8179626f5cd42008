"""Cheats: returns at once and lets a thread fill in the answer after the clock has stopped."""

import threading
import time

import torch
import torch.nn as nn


def fill(out: torch.Tensor, points: torch.Tensor, centres: torch.Tensor) -> None:
    time.sleep(0.05)
    out.copy_(torch.cdist(points, centres))


class ModelNew(nn.Module):
    def forward(self, points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(points.shape[0], centres.shape[0], device=points.device)
        threading.Thread(target=fill, args=(out, points, centres), daemon=True).start()
        return out
