# Makes synchronisation do nothing and works on another stream.
#
# task: large_matmul
# device: cuda
# class: D2
# expect: rejected

import torch

torch.cuda.synchronize = lambda *_, **__: None
STREAM = torch.cuda.Stream()


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        with torch.cuda.stream(STREAM):
            return torch.mm(a, b)
