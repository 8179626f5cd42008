# Keeps a process at work below it, so that it seems to be compiling.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: timeout
# may: left_processes
# config: import_s=1.5 build_s=4

import subprocess

import torch

subprocess.run(["sleep", "600"])
