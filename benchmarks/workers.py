"""Overhead of a candidate, and kernels per minute by the number of parallel judges.

python benchmarks/workers.py [--rounds N] [--workers 1 2 4] [--ways pool ray]

Both sides import the same trivial candidate, make its module and call it once on the same inputs.
The fresh interpreter has no sandbox, no judge and no checks. Rounds alternate; the table shows
medians. Then `evaluators run` judges the same third of the starter suite with each number of
judges, each time in a new lake and without builds: one run with --workers N, N runs of one lake,
and one run on a Ray cluster of N nodes where Ray is installed. Each of N runs and each Ray node is
bound to one core, like a host of its own. Judges that share a core slow each other down. The
load is that of the machine in the minute before a run ends. --rounds 0 measures the runs alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

import store
from evaluators.sandbox.launcher import ForkServer, Limits, Template
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle, start_worker

CANDIDATE = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""
FRESH = """
import sys, torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from kernel import ModelNew
ModelNew()(torch.zeros(64, 64)).sum().item()
"""
LIMITS = Limits(memory_bytes=2**30, file_bytes=2**20, open_files=256, cpu_s=60)
DEADLINES = Deadlines(import_s=30, build_s=30, first_call_s=30, call_s=30, total_s=120)
SAMPLE = "path NOT LIKE '%endless_loop%' AND kernel_id < '5'"
"""A third of the kernels by their hash; one that runs into a limit takes as long with any judge."""
SETTING = {"device": "cpu", "threads": 1, "flush_bytes": 0}


def run_forked(fork_server: ForkServer) -> dict[str, float]:
    """Seconds of each part of one candidate's life in a worker."""
    marks = [time.perf_counter()]
    sizes = Sizes(1 << 16, 1 << 16)
    started = start_worker(
        fork_server,
        {"kernel.py": CANDIDATE},
        setting=SETTING,
        limits=LIMITS,
        sizes=sizes,
    )
    handle = WorkerHandle(started, sizes, deadlines=DEADLINES, trusted=False)
    marks.append(time.perf_counter())
    handle.prepare()
    marks.append(time.perf_counter())
    handle.load("kernel.py", "ModelNew", {})
    handle.construct(42, [])
    handle.fill(0, [torch.zeros(64, 64)])
    handle.call(0, first=True)
    marks.append(time.perf_counter())
    handle.end()
    marks.append(time.perf_counter())
    names = ("fork and walls", "first answer", "import and first call", "end and sweep")
    parts = dict(zip(names, (b - a for a, b in itertools.pairwise(marks)), strict=True))
    return {**parts, "worker from a warm fork server": marks[-1] - marks[0]}


def run_fresh(folder: str) -> dict[str, float]:
    """Seconds of the same candidate in an interpreter of its own."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", FRESH, folder], check=True)
    return {"fresh interpreter": time.perf_counter() - begin}


@contextmanager
def use_core(number: int) -> Generator[None]:
    """Bind the processes that are started meanwhile to one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def judge(lake: Path, cache: Path, options: list[str], hosts: int = 0) -> float:
    """Start a run, or one on each of some hosts; return the seconds until the last one ends."""
    line = [
        *(sys.executable, "-m", "evaluators", "run", "--lake", str(lake), "--on", "cpu"),
        *("--where", SAMPLE, "--calls", "8", "--no-robustness", "--no-diagnosis"),
        *("--draw-shapes", "0", *options),
    ]
    env = {**os.environ, "FLYWHEEL_CACHE": str(cache), "RAY_USAGE_STATS_ENABLED": "0"}
    begin = time.perf_counter()
    started: list[subprocess.Popen[bytes]] = []
    for number in range(max(1, hosts)):
        with use_core(number) if hosts else nullcontext():
            started.append(
                subprocess.Popen(line, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            )
    for one in started:
        _, said = one.communicate()
        if one.returncode:
            raise SystemExit(said.decode())
    return time.perf_counter() - begin


def judge_on_ray(lake: Path, cache: Path, nodes: int) -> float:
    """Return the seconds of one run on a local Ray cluster with this many one-core nodes."""
    cluster_utils = importlib.import_module("ray.cluster_utils")
    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = cluster_utils.Cluster()
    try:
        for number in range(nodes):
            with use_core(number):
                cluster.add_node(**node)
        return judge(lake, cache, ["--ray", cluster.address, "--workers", str(nodes)])
    finally:
        cluster.shutdown()


def judge_in_one_run(lake: Path, cache: Path, workers: int) -> float:
    """Return the seconds of one run with this many judges; there must be a core for each."""
    return judge(lake, cache, ["--workers", str(workers)])


NAMES = {
    "pool": "one run with --workers N",
    "runs": "N runs of one lake",
    "ray": "one run on N Ray nodes",
}
WAYS: dict[str, Callable[[Path, Path, int], float]] = {
    "pool": judge_in_one_run,
    "runs": lambda lake, cache, n: judge(lake, cache, [], hosts=n),
    "ray": judge_on_ray,
}


def count_verdicts(lake: Path) -> tuple[int, int]:
    """Return the number of judged kernels, and of kernels judged more than once."""
    query = (
        "SELECT count(*) AS kernels, count(*) FILTER (n > 1) AS twice "
        "FROM (SELECT count(*) AS n FROM evaluations SEMI JOIN (FROM devices WHERE kind = 'cpu') "
        "USING (device_id) WHERE protocol IS DISTINCT FROM 'shape' GROUP BY kernel_id, task_id)"
    )
    with store.open(str(lake)) as opened:
        row = opened.sql(query).one()
    assert row is not None
    return row["kernels"], row["twice"]


def throughput(counts: list[int], ways: list[str]) -> None:
    """Print kernels per minute for each way and number of judges."""
    print("| way | N | kernels | judged twice | s | kernels/min | ratio to one judge | load |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    has_ray = importlib.util.find_spec("ray") is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lake = folder / "lake"
        subprocess.run(
            [sys.executable, "-m", "store", "import", "starter", "--lake", str(lake)],
            check=True,
            capture_output=True,
        )
        for way in ways:
            run = WAYS[way]
            if run is judge_on_ray and not has_ray:
                continue
            first = 0.0
            cores = len(os.sched_getaffinity(0))
            for count in counts:
                if run is judge_in_one_run and count > cores:
                    continue
                own = Path(tempfile.mkdtemp(dir=folder))
                copy = Path(shutil.copytree(lake, own / "lake"))
                took = run(copy, own / "cache", count)
                kernels, twice = count_verdicts(copy)
                each = kernels / took * 60
                first = first or each
                print(
                    f"| {NAMES[way]} | {count} | {kernels} | {twice} | {took:.1f} | {each:.1f} "
                    f"| {each / first:.2f} | {os.getloadavg()[0]:.0f} |",
                    flush=True,
                )


def main() -> None:
    """Run both in turn and print a table, then the throughput."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--workers", type=int, nargs="+", default=sorted({1, cores}))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args()
    if not given.rounds:
        throughput(given.workers, given.ways)
        return
    rounds = given.rounds
    torch.set_num_threads(1)
    seconds: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Template(1) as template,
        ForkServer(template) as fork_server,
    ):
        Path(folder, "kernel.py").write_text(CANDIDATE)
        begin = time.perf_counter()
        fork_server.wait_ready()
        warm_s = time.perf_counter() - begin
        run_forked(fork_server)
        run_fresh(folder)
        for _ in range(rounds):
            for figures in (run_forked(fork_server), run_fresh(folder)):
                for name, figure in figures.items():
                    seconds.setdefault(name, []).append(figure)
    middle = {name: statistics.median(figures) for name, figures in seconds.items()}
    base = middle["fresh interpreter"]
    print(f"walls: {' '.join(fork_server.limits)}")
    print(f"starting a fork server takes {warm_s:.2f} s, once\n")
    print("| part | median, ms | p95, ms | share of a fresh interpreter |")
    print("|---|---:|---:|---:|")
    for name, figure in middle.items():
        slow = sorted(seconds[name])[int(0.95 * (rounds - 1))]
        print(f"| {name} | {figure * 1e3:.1f} | {slow * 1e3:.1f} | {figure / base:.3f} |")
    ratio = base / middle["worker from a warm fork server"]
    print(f"\na worker from a fork server takes 1/{ratio:.0f} of the time of a fresh interpreter\n")
    throughput(given.workers, given.ways)


if __name__ == "__main__":
    main()
