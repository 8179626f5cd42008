# Defines a class of another name.
#
# task: matmul_relu
# device: cpu
# class: none
# expect: compile_error/no_entry_point

import torch


class Model(torch.nn.Module):
    pass
