# Every one of its processes keeps below the limit of one.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: crash compile_error
# may: left_processes
# config: memory_gb=0.75
# needs: pid_namespace

import os
import time

import torch

for _ in range(6):
    if os.fork() == 0:
        held = torch.ones(96 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(30)
