# Doubles a text until there is no memory.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash compile_error
# config: memory_gb=0.75

import torch

text = "x" * 1024
while True:
    text += text
