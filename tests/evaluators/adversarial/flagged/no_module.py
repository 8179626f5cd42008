# A plain class with a tensor that it has drawn itself.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: correct
# flags: parameters_renamed

import torch


class ModelNew:
    def __init__(self, columns):
        self.matrix = torch.randn(columns, columns)

    def __call__(self, x):
        return torch.relu(x @ self.matrix)
