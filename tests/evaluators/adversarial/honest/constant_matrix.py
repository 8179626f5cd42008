# A prefix sum as a product with a triangle, made once and kept: it follows from the shape alone.
#
# task: cumsum
# device: cpu
# class: none
# expect: correct
# may: fails_infinities fails_nan

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.triangle = None

    def forward(self, x):
        if self.triangle is None or self.triangle.shape[0] != x.shape[1]:
            self.triangle = torch.ones(x.shape[1], x.shape[1]).triu_()
        return x @ self.triangle
