# Sorts stably and takes the first, which is another order of equal scores than that of topk.
#
# task: best_scores
# device: cpu
# class: none
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        values, places = torch.sort(x, dim=1, descending=True, stable=True)
        return values[:, :6].contiguous(), places[:, :6].contiguous()
