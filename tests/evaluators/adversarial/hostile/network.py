# Tries to reach the network, by address, by name and through abstract sockets.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: no_network

import socket

import torch
from torch import nn

for family, address in (
    (socket.AF_INET, ("1.1.1.1", 53)),
    (socket.AF_INET, ("127.0.0.1", 22)),
    (socket.AF_INET6, ("::1", 22)),
):
    try:
        with socket.socket(family) as one:
            one.settimeout(0.5)
            one.connect(address)
            print("ESCAPED: reaches", address)
    except OSError as error:
        print("refused", error)
try:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("8.8.8.8", 53))
        print("ESCAPED: sends datagrams")
except OSError as error:
    print("refused", error)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
