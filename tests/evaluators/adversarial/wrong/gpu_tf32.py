# Switches TF32 on under a precision that does not allow it.
#
# task: large_matmul
# device: cuda
# class: E4
# expect: incorrect/incorrect_numerical

import torch

torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
