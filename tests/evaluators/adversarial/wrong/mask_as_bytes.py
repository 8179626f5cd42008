# A mask of bytes in place of truth values.
#
# task: gates
# device: cpu
# class: none
# expect: incorrect/incorrect_dtype

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return (x > self.threshold).to(torch.uint8), torch.floor(x * 8).to(torch.int32)
