# Searches the disk for the task's text and for results of others.
#
# task: gelu
# device: cpu
# class: C2
# expect: incorrect
# needs: landlock

import os
import pathlib

import torch
from torch import nn

OWN = pathlib.Path.cwd()


def search(top, depth=4):
    try:
        entries = list(os.scandir(top))
    except OSError:
        return
    for entry in entries:
        path = pathlib.Path(entry.path)
        if path == OWN or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth:
                search(path, depth - 1)
        elif path.suffix in (".py", ".json", ".parquet", ".ducklake", ".log"):
            try:
                text = path.read_bytes()[: 1 << 16]
            except OSError:
                continue
            print("ESCAPED: can read", path, len(text))


for folder in (OWN.parent, OWN.parent.parent, pathlib.Path.home(), "/tmp", "/root", "/home", "/work"):
    if pathlib.Path(folder) != OWN:
        search(folder)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
