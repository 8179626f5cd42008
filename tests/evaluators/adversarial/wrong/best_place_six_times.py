# Six places of large numbers, of which one is named twice.
#
# task: best_scores
# device: cpu
# class: none
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.topk(x, 6, dim=1)
        same = values[:, 1:] == values[:, :-1]
        places[:, 1:] = torch.where(same, places[:, :-1], places[:, 1:])
        return values, places
