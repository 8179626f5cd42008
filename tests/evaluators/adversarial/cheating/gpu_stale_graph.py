# A CUDA graph captured on the first input's address and replayed for every other.
#
# task: gelu
# device: cuda
# class: A10
# expect: incorrect/incorrect_numerical
# may: reuses_output_buffer

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.x = x
            nn.functional.gelu(x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = nn.functional.gelu(self.x)
        self.graph.replay()
        return self.out.clone()
