# Breaks the modules that its process talks with: json, socket, struct.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: rejected crash compile_error

import json
import socket

import torch
from torch import nn


def broken(*_, **__):
    raise SystemError("broken")


json.dumps = json.loads = broken
socket.socket.send = broken
socket.socket.recvmsg = broken


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
