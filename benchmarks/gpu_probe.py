"""What hides a GPU's kernels from torch's profiler in a worker: the fork, or one of its walls?

python benchmarks/gpu_probe.py [--device cuda|cpu]

Every line is one process that multiplies two matrices under the profiler, and how many kernels
(operators, on a processor) it was shown. `early` starts a profiler before the first use of CUDA,
so that it is told of the context.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, ROOT)
WALLS = ("landlock", "signal_scope", "no_capabilities", "seccomp")


def seen(device: str, *, early: bool) -> int:
    """Kernels of a product that the profiler shows to this process."""
    import torch
    from torch._C._autograd import DeviceType
    from torch.autograd.profiler import profile

    use = device if device == "cuda" else None
    if early:
        with profile(use_device=use, use_kineto=True):
            pass
    one = torch.ones(256, 256, device=device)
    with profile(use_device=use, use_kineto=True):
        one @ one
    wanted = DeviceType.CUDA if device == "cuda" else DeviceType.CPU
    profiled: Any = profile(use_device=use, use_kineto=True)
    with profiled:
        one @ one
        if device == "cuda":
            torch.cuda.synchronize()
    return sum(event.device_type == wanted for event in profiled.function_events or [])


def forked(device: str, walls: Callable[[], None], *, early: bool) -> str:
    """What a fork of this process is shown behind some walls."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            walls()
            answer = str(seen(device, early=early))
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"[:200]
        os.write(told, answer.encode())
        os._exit(0)
    os.close(told)
    with os.fdopen(heard, "rb") as lines:
        answer = lines.read().decode()
    os.waitpid(pid, 0)
    return answer or "it ended without an answer"


def fresh(device: str, *, early: bool) -> str:
    """What a new interpreter is shown."""
    script = (
        "import runpy, sys\n"
        f"probe = runpy.run_path({str(Path(__file__).resolve())!r})\n"
        f"print(probe['seen']({device!r}, early={early}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1][:200]


def worker(device: str) -> str:
    """What a worker of the judge tells."""
    from evaluators.sandbox.launcher import ForkServer, Limits
    from evaluators.worker.handle import Deadlines, WorkerHandle

    text = "class ModelNew:\n    def __call__(self, x): return x @ x\n"
    deadlines = Deadlines(import_s=60, build_s=60, first_call_s=60, call_s=60, total_s=300)
    with ForkServer(1) as fork_server:
        handle = WorkerHandle(
            fork_server,
            {"kernel.py": text},
            setting={"device": device, "threads": 1, "flush_bytes": 1 << 20},
            limits=Limits(memory_bytes=None, file_bytes=1 << 24, open_files=1024, cpu_s=300),
            deadlines=deadlines,
            inbox_bytes=1 << 20,
            outbox_bytes=1 << 20,
            trusted=False,
        )
        try:
            import torch

            handle.prepare()
            handle.load("kernel.py", "ModelNew", {})
            handle.construct(0, [])
            handle.fill(0, [torch.ones(256, 256, device=device)])
            return str(len(handle.profile(0).kernels))
        finally:
            handle.end()


def main() -> None:
    """Read the options and compare."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    device: str = options.parse_args().device
    if device == "cuda":
        # Whether there is a GPU is asked without starting CUDA, which no fork would survive.
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device; --device cpu tries the probe itself")
    with tempfile.TemporaryDirectory(prefix="flywheel-probe-") as scratch:
        os.environ["TMPDIR"] = scratch
        compare(device, scratch)


def compare(device: str, scratch: str) -> None:
    """Print a line for each sort of process; those behind walls may write to `scratch`."""
    from evaluators.sandbox import isolation
    from evaluators.sandbox.linux import privileges

    gpu = device == "cuda"

    def behind(*parts: str) -> Callable[[], None]:
        def walls() -> None:
            isolation.guard(parts, [scratch], gpu=gpu)
            isolation.narrow(parts, [scratch], gpu=gpu)

        return walls

    for early in (False, True):
        mark = " early" if early else ""
        print(f"{'fresh' + mark:28} {fresh(device, early=early)}", flush=True)
        print(f"{'fork' + mark:28} {forked(device, lambda: None, early=early)}", flush=True)
    cases: dict[str, Callable[[], None]] = {"not_dumpable": privileges.hide_memory}
    cases |= {wall: behind(wall) for wall in WALLS} | {"all of them": behind(*WALLS)}
    for name, walls in cases.items():
        print(f"{'fork ' + name:28} {forked(device, walls, early=False)}", flush=True)
    early_all = forked(device, behind(*WALLS), early=True)
    print(f"{'fork all of them early':28} {early_all}", flush=True)
    # Last: it starts CUDA in this process.
    print(f"{'a worker of the judge':28} {worker(device)}", flush=True)


if __name__ == "__main__":
    main()
