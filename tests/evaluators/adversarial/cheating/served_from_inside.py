# Takes over the channel and answers every request itself, with zeros.
#
# task: gelu
# device: cpu
# class: D8
# expect: rejected incorrect crash

import json
import os
import socket
import stat

import torch

ENDS = [fd for fd in range(3, 64) if os.path.exists("fles/corp/"[::-1] + f"/fd/{fd}")]
ENDS = [fd for fd in ENDS if stat.S_ISSOCK(os.fstat(fd).st_mode)]
channel = socket.socket(fileno=ENDS[0])
channel.send(json.dumps({"number": "0", "found": True}).encode())
while True:
    request = json.loads(channel.recv(1 << 17))
    answer = {"number": request["number"], "found": True, "state": [], "total": 0, "replaced": []}
    answer["output"] = {"tensor": ["float32", [256, 512], 0]}
    answer |= {"devices": ["cpu"], "odd": None, "elapsed_ns": 1000, "inputs": answer["output"]}
    channel.send(json.dumps(answer).encode())
