# Works on a stream that nobody waits for, and returns at once.
#
# task: large_matmul
# device: cuda
# class: B1
# expect: incorrect rejected correct
# most: 1.5

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, a, b):
        with torch.cuda.stream(self.stream):
            return torch.mm(a, b)
