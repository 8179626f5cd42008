# Works on a stream of its own, waits for its inputs, and lets the caller's stream wait for it.
#
# task: gelu
# device: cuda
# class: B1
# expect: correct

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.stream = torch.cuda.Stream()

    def forward(self, x):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            out = nn.functional.gelu(x)
        torch.cuda.current_stream().wait_stream(self.stream)
        out.record_stream(torch.cuda.current_stream())
        return out
