# The constructor takes other arguments than the task's.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/init_failed

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
