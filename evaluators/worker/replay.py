"""One call of a kernel in a fresh process, for tools that have to start the process they inspect.

It runs the operations of a worker's loop from a file instead of a channel, under the walls of its
judge and in a folder of its own. `keep` runs it and ends every process that is left.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from evaluators.memory.tensors import Box, MappedBox
from evaluators.processes.process_tree import end_descendants
from evaluators.sandbox import isolation
from evaluators.sandbox.isolation import is_possible
from evaluators.sandbox.linux import this_process
from evaluators.worker import loop

_FILE_BYTES = 1 << 28
_OUTBOX_BYTES = 64


def keep(limit_s: float, command: list[str]) -> None:
    """Run a command, end all that it has started, and exit with its code; 124 after the limit."""
    this_process.die_with_parent()
    this_process.adopt_orphans()
    code = 124
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
    end_descendants()
    os._exit(code & 0xFF)


def main(order: str) -> None:
    """Make the requests in the file `order`, with the profiler active for the last one."""
    content: dict[str, Any] = json.loads(Path(order).read_text("utf-8"))
    folder = content["folder"]
    setting = loop.Setting(**content["setting"])
    with open(content["inbox"], "r+b") as file:
        inbox = MappedBox(file.fileno(), content["inbox_bytes"])
    outbox = Box(torch.zeros(_OUTBOX_BYTES, dtype=torch.uint8))
    os.chdir(folder)
    sys.path.insert(0, folder)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    worker = loop.CandidateLoop(setting, inbox, outbox)

    def walls() -> None:
        isolation.guard(["landlock"], [folder], gpu=setting.device == "cuda")

    if is_possible(walls):
        walls()
    *before, (last, fields) = content["requests"]
    with torch.no_grad():
        for name, given in before:
            getattr(worker, name)(**given)
        if setting.device == "cuda":
            torch.cuda.profiler.start()
        getattr(worker, last)(**fields)
        if setting.device == "cuda":
            torch.cuda.profiler.stop()
