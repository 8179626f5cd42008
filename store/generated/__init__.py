"""Families of generated tasks with a teacher's kernels, as texts made from a seed.

A bare file is a family and has its name. It states SPLIT, the split of the whole family, and its
function `task` draws a task from a `Draw`. store/generated/writing has what families share. Nothing
here runs a kernel.
"""
