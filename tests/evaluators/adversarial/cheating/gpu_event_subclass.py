# Gives its worker an event class of its own, found through the collector.
#
# task: large_matmul
# device: cuda
# class: D2
# expect: rejected correct
# most: 1.2

import gc

import torch


class Quick(torch.cuda.Event):
    def elapsed_time(self, other):
        return super().elapsed_time(other) / 100


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        for one in gc.get_objects():
            if type(one).__name__ == "CandidateLoop":
                one._event = Quick
        return torch.mm(a, b)
