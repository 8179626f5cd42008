# A forward method that has to be awaited.
#
# task: softmax
# device: cpu
# class: none
# expect: incorrect/incorrect_type

import torch


class ModelNew(torch.nn.Module):
    async def forward(self, x):
        return torch.softmax(x, dim=1)
