# Never comes to an end of its import.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/import_timeout
# config: import_s=1

import torch

while True:
    pass
