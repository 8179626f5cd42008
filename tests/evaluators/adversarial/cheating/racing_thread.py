# Leaves its work to a thread that starts at once, and returns before it is done.
#
# task: large_matmul
# device: cpu
# class: B2
# expect: incorrect rejected
# config: timing_s=0.3

import threading

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.zeros(a.shape[0], b.shape[1])
        threading.Thread(target=torch.mm, args=(a, b), kwargs={"out": out}).start()
        return out
