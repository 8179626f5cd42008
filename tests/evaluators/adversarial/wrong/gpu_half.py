# Multiplies in half precision.
#
# task: large_matmul
# device: cuda
# class: E4
# expect: incorrect/incorrect_numerical

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a.half() @ b.half()).float()
