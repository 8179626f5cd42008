"""Time to build and judge the teacher's kernels, compared with other build methods.

python benchmarks/generated.py [--tasks N] [--rounds N]

Builds: builds one elementwise chain with each method that this machine has, in a fresh process that
has imported torch. Measures the wall time and the CPU time, including compilers, of importing the
file, constructing the module and the first call, because some methods compile only then.
Judging: judges the correct kernels of a few tasks, with few calls and a minimum of timing.
GPU methods run if there is a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from store.generated.writing import families
from store.generated.writing.texts import Task

LIMITS = Config(
    draw_shapes=0,
    calls=3,
    robustness=False,
    diagnosis=False,
    timing_s=0.05,
    timing_limit_s=0.5,
    blocks=20,
)
BUILD = """
import importlib.util, json, os, sys, time, torch
file, device, mirror = sys.argv[1:]
if mirror:
    import torch.utils.cpp_extension
    torch.utils.cpp_extension._TORCH_PATH = mirror
x = torch.randn(256, 1024, device=device)
spent, begun = os.times(), time.perf_counter()
spec = importlib.util.spec_from_file_location("kernel", file)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.ModelNew()(x)
if device != "cpu":
    torch.cuda.synchronize()
wall, now = time.perf_counter() - begun, os.times()
print(json.dumps([wall, sum(now[:4]) - sum(spent[:4])]))
"""
TENSORS = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <math.h>
torch::Tensor run(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (long i = 0; i < x.numel(); ++i) to[i] = tanhf(from[i]) * 0.5f;
  return out;
}
"""
MODULE = load_inline("inline", SOURCE, functions=["run"], extra_cflags=["-O3"]MORE)


class ModelNew(nn.Module):
    def forward(self, x):
        return MODULE.run(x)
'''
POINTERS = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <math.h>
#include <pybind11/pybind11.h>
{declared}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("run", &run); }}
"""
DEVICE = r"""
{device}
"""
MODULE = load_inline(
    "inline", SOURCE, DEVICE.strip() or None, extra_cflags=["-O3"], no_implicit_headers=True
)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        MODULE.run(x.data_ptr(), out.data_ptr(), x.numel())
        return out
'''
HOST = """
void run(long from, long to, long n) {
  for (long i = 0; i < n; ++i) ((float*)to)[i] = tanhf(((const float*)from)[i]) * 0.5f;
}
"""
GPU = """
#include <cuda_runtime.h>
__global__ void each(const float* from, float* to, long n) {
  const long i = blockIdx.x * 256l + threadIdx.x;
  if (i < n) to[i] = tanhf(from[i]) * 0.5f;
}
void run(long from, long to, long n) {
  each<<<(n + 255) / 256, 256>>>((const float*)from, (float*)to, n);
}
"""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to build a kernel: its file, and for how many rounds it is built."""

    name: str
    code: str
    rounds: int
    device: str = "cpu"
    precompiled: bool = False


def build_once(way: Way, folder: Path, mirror: Path) -> list[float]:
    """Return wall and CPU seconds until the first call has returned."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        file = Path(own) / "kernel.py"
        file.write_text(way.code)
        environment = os.environ | {"TORCH_EXTENSIONS_DIR": own, "TRITON_CACHE_DIR": own}
        torch = str(mirror) if way.precompiled else ""
        command = [sys.executable, "-c", BUILD, str(file), way.device, torch]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            sys.exit(f"{way.name}: the build failed\n{done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1])


def mirror_headers(folder: Path) -> Path:
    """Return a folder with links to torch's headers, for the precompiled one to lie beside them.

    torch writes it next to torch/extension.h, which would change the installation.
    """
    import torch

    real = Path(torch.__file__).parent / "include"
    include = folder / "torch" / "include"
    (include / "torch").mkdir(parents=True)
    for one in [*real.iterdir(), *(real / "torch").iterdir()]:
        if one != real / "torch":
            (include / one.relative_to(real)).symlink_to(one)
    return folder / "torch"


def measure_ways(ways: Sequence[Way]) -> None:
    """Print a line for every build method; their rounds alternate."""
    seconds: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        mirror = mirror_headers(Path(folder))
        for number in range(max(way.rounds for way in ways)):
            for way in ways:
                if number < way.rounds:
                    found = build_once(way, Path(folder), mirror)
                    print(f"{way.name}: {found[0]:.1f} s", file=sys.stderr, flush=True)
                    seconds.setdefault(way.name, []).append(found)
    print("| build method | build and first call, median wall s | median CPU s | rounds |")
    print("|---|---|---|---|")
    for name, found in seconds.items():
        wall, spent = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {wall:.2f} | {spent:.2f} | {len(found)} |", flush=True)


def teachers() -> dict[str, str]:
    """Return the teacher's kernels of one chain, by variant."""
    found = (task for _, task in families.generate_tasks(("elementwise",), 0))
    # One input and no parameters, as the other texts have, and a function of <math.h>.
    task = next(
        task
        for task in found
        if "nn.Parameter" not in task.code
        and "forward(self, x)" in task.code
        and any("<math.h>" in kernel.code for kernel in task.kernels)
    )
    return {kernel.variant: kernel.code for kernel in task.kernels if kernel.right}


def make_cpu_ways(rounds: int) -> list[Way]:
    """Return the build methods for a CPU."""
    c = teachers()["cpp_vector"]
    cpp = c.replace("gcc ", "g++ ").replace("-x c ", "-x c++ ")
    cpp = cpp.replace("\nvoid run(", '\nextern "C" void run(')
    pch = TENSORS.replace("MORE", ", use_pch=True")
    return [
        Way(name="C through ctypes (used by the generated kernels)", code=c, rounds=rounds),
        Way(name="C++ through ctypes", code=cpp, rounds=rounds),
        Way(
            name="load_inline, only pybind11 headers (no_implicit_headers)",
            code=POINTERS.format(declared=HOST, device=""),
            rounds=1,
        ),
        Way(name="load_inline", code=TENSORS.replace("MORE", ""), rounds=1),
        Way(
            name="load_inline (use_pch), including the compilation of the header",
            code=pch,
            rounds=1,
            precompiled=True,
        ),
        Way(
            name="load_inline (use_pch), header compiled before",
            code=pch,
            rounds=1,
            precompiled=True,
        ),
    ]


def make_gpu_ways(rounds: int) -> list[Way]:
    """Return the build methods for a GPU, with nvcc if it is installed."""
    from torch.utils.cpp_extension import CUDA_HOME

    texts = teachers()
    ways = [
        Way(
            name="CUDA by NVRTC (used by the generated kernels)",
            code=texts["cuda_one"],
            rounds=rounds,
        ),
        Way(
            name="Triton (used by the generated kernels)", code=texts["triton_1024"], rounds=rounds
        ),
    ]
    if CUDA_HOME is None:
        print("load_inline with nvcc: skipped, because there is no CUDA toolkit\n")
    else:
        declared = "void run(long, long, long);"
        code = POINTERS.format(declared=declared, device=GPU)
        name = "load_inline with nvcc, only pybind11 headers (no_implicit_headers)"
        ways.append(Way(name=name, code=code, rounds=1))
    return [replace(way, device="cuda") for way in ways]


def measure_judging(tasks: int, device: str) -> None:
    """Print the time to judge a kernel, by language."""
    wall: dict[str, list[float]] = {}
    build: dict[str, list[float]] = {}
    statuses: dict[str, int] = {}
    here = ("torch", "cpp") if device == "cpu" else ("torch", "triton", "cuda")
    with Bench(device) as bench:
        for _, task in islice(families.generate_tasks(families.family_names(), 0), tasks):
            for kernel in task.kernels:
                if kernel.right and kernel.language in here:
                    row = judge(_case(task, kernel.code, device), bench, LIMITS)["evaluations"][0]
                    wall.setdefault(kernel.language, []).append(row["wall_s"])
                    build.setdefault(kernel.language, []).append(row["build_s"] or 0.0)
                    statuses[row["status"]] = statuses.get(row["status"], 0) + 1
    print(f"\n| language, on {device} | kernels | build median s | judge median s |")
    print("|---|---|---|---|")
    for name, seconds in wall.items():
        built_s = statistics.median(build[name])
        print(f"| {name} | {len(seconds)} | {built_s:.2f} | {statistics.median(seconds):.2f} |")
    print(f"\nverdicts: {json.dumps(statuses)}", flush=True)


def _case(task: Task, code: str, device: str) -> Case:
    axes = json.dumps(task.cuda if device != "cpu" else {})
    return Case(
        kernel_id=code,
        task_id=task.title,
        workload_id=axes,
        code=code,
        task_code=task.code,
        axes=axes,
    )


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=9)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()

    import torch

    measure_ways(make_cpu_ways(given.rounds))
    measure_judging(given.tasks, "cpu")
    if torch.cuda.is_available():
        print()
        measure_ways(make_gpu_ways(given.rounds))
        measure_judging(given.tasks, "cuda:0")
    else:
        print("\nNVRTC and Triton: skipped, because there is no GPU")


if __name__ == "__main__":
    main()
