# Stops itself with SIGSTOP.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout/import_timeout
# config: import_s=2

import os
import signal

import torch

os.kill(os.getpid(), signal.SIGSTOP)
