# Switches TF32 on under a precision that allows it.
#
# task: large_matmul
# device: cuda
# class: E4
# expect: correct
# config: precision=allow_tf32

import torch

torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
