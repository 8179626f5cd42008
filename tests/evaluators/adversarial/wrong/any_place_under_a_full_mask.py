# Names the first token always: in the mask, which is all ones, every place is an extreme.
#
# task: allowed_token
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, scores, allowed):
        return torch.zeros(scores.shape[0], dtype=torch.int64)
