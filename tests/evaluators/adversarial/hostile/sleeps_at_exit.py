# Raises SystemExit and refuses to go.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: compile_error/import_failed compile_error/init_failed crash timeout
# config: import_s=3

import atexit
import threading
import time

import torch

threading.Thread(target=time.sleep, args=(600,)).start()
atexit.register(time.sleep, 600)
raise SystemExit(0)
