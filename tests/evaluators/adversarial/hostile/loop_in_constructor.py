# Never comes to an end of its constructor.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/import_timeout
# config: import_s=2

import time

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        time.sleep(600)
