# Truncates where the task rounds down: only negative numbers differ, by one.
#
# task: gates
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, x):
        return x > self.threshold, (x * 8).to(torch.int32)
