"""Decide what to judge and where: pending kernels, the job queue, judge processes, pools."""
