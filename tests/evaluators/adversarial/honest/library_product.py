# Wraps the library's own product in a handler that names a kernel it never calls.
#
# task: large_matmul
# device: cpu
# class: E3
# expect: correct
# slow: yes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        try:
            return self.fused_kernel(a, b)
        except Exception:
            return torch.matmul(a, b)
