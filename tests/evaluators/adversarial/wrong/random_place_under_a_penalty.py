# Right values, and the place of any penalty, which are all zero.
#
# task: penalised
# device: cpu
# class: A3
# expect: incorrect/incorrect_numerical

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, penalty):
        return (x - penalty).amax(dim=1), torch.randint(0, x.shape[1], (x.shape[0],))
