"""Families of generated tasks with kernels by a teacher: texts made from a seed, never run here.

A bare file is a family and its name is the family's. It states SPLIT (the side that the whole
family is on) and draws a task from a `Draw`; files with an underscore are machinery.
"""
