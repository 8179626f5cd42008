# Registers an operation in place of the library's, which computes once an answer is copied out.
#
# task: large_matmul
# device: cpu
# class: B3
# expect: incorrect

import torch
from torch import nn

WAITING = {}
CALLS = torch.library.Library("aten", "IMPL")


def copied(*args):
    target, source = (one for one in args if isinstance(one, torch.Tensor))
    waiting = WAITING.pop(source.data_ptr(), None)
    if waiting is not None:
        source = torch.mm(*waiting)
    torch.from_dlpack(target).numpy()[...] = source.numpy()
    return target


CALLS.impl("copy_", copied, "CPU", with_keyset=True)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        out = torch.empty(a.shape[0], b.shape[1])
        WAITING.clear()
        WAITING[out.data_ptr()] = a, b
        return out
