# A CUDA graph that copies its input in and gives the same storage every time.
#
# task: gelu
# device: cuda
# class: A10
# expect: correct
# may: fails_empty_rows
# flags: reuses_output_buffer

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.x = x.clone()
            nn.functional.gelu(self.x)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = nn.functional.gelu(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.out
