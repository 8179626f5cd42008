# The forward method takes another number of inputs.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: crash/exception

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()

    def forward(self, x, mask):
        return x
