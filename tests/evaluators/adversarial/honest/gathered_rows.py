# Gathers the rows of an embedding by whole-number inputs.
#
# task: embedding
# device: cpu
# class: none
# expect: correct
# may: fails_empty_rows

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.table = nn.Embedding(count, width)

    def forward(self, ids):
        rows = self.table.weight.index_select(0, ids.reshape(-1))
        return rows.view(*ids.shape, -1).sum(dim=1)
