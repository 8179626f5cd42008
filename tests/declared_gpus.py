"""Runs a command for a Ray cluster whose nodes declare GPUs that they do not have.

`declared_gpus.py evaluators run …`: Ray places one actor on each declared GPU, as on real ones, and
the judge process of an actor judges on the processor of its node.
"""

from __future__ import annotations

import os
import runpy
import sys

import one_thread

if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    sys.argv = sys.argv[1:]
    one_thread.use_one_thread()
    from evaluators.scheduling import ray_cluster

    ray_cluster.GPU_DEVICE = "cpu"
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
