# Never comes to an end of its import.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/import_timeout
# config: import_s=2

import torch

while True:
    pass
