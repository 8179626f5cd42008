# Asks for names, sizes and dates of files outside, and reads them by every way to a path.
#
# task: matmul_relu
# device: cpu
# class: F1
# expect: correct
# needs: own_root

import glob
import os
import pwd

import torch
from torch import nn

home = pwd.getpwuid(0).pw_dir
outside = [f"{home}/{name}" for name in (".bashrc", ".profile", ".ssh")]
outside += ["/etc/shadow", "/etc/hostname", "/home", "/var/log", "/boot"]
above = os.path.dirname(os.getcwd())
ways = ["{}", "/proc/self/root{}", "/proc/1/root{}", "/proc/self/cwd/../../../../..{}"]
for path in outside:
    for way in ways:
        try:
            found = os.stat(way.format(path))
            print("ESCAPED: knows", way.format(path), found.st_size)
        except OSError:
            pass
for name in ("..", "../..", "/tmp", "/", above):
    try:
        print("ESCAPED: lists", name, os.listdir(name)[:3])
    except OSError as error:
        print("refused", error)
if glob.glob("/tmp/flywheel-canary-*"):
    print("ESCAPED: sees folders of others")
for line in open("/proc/self/mountinfo"):
    place, flags = line.split()[4:6]
    own = place.startswith(os.getcwd()) or os.getcwd().startswith(place + "/")
    if "rw" in flags.split(",") and not own and place not in ("/dev/shm",):
        print("ESCAPED: may write", line)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)
