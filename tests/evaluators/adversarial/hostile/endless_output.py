# Prints without end.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash timeout compile_error
# config: file_mb=2

import os

import torch

while True:
    os.write(2, b"x" * 65536)
