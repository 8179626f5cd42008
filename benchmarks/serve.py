"""The judge service against `evaluators run`, its latency, and a soak with killed judges.

python benchmarks/serve.py [--kernels N] [--soak SECONDS] [--seed N]

The same kernels, half of them wrong, are judged by `evaluators run` in one lake and through HTTP in
another, one after the other on the same cores. The rate is taken between the first and the last
verdict, so that the start of torch does not count. Then one client asks for a stored verdict again
and again, and 64 and 512 clients do so at the same time. In the soak, kernels arrive all the time
and the judge is killed at random; at the end every kernel must have its one right verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

import store
from evaluators.service.client import Client, Judgement

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import builders

TASK = "temperature_softmax"
KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    # kernel {number} of {name}
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, x):
        return torch.softmax(x / self.temperature, dim=-1){change}
"""
QUICK = (
    *("--on", "cpu", "--no-diagnosis", "--no-robustness", "--calls", "2"),
    *("--timing-s", "0.05", "--blocks", "20"),
)
CACHED = 500
CLIENTS = (64, 512)
ROUNDS = 4
KILL_S = (4.0, 12.0)


def write_kernels(name: str, count: int) -> list[tuple[str, str]]:
    """Return texts of kernels with the status that each must get."""
    return [
        (
            KERNEL.format(number=number, name=name, change=" * 1.5" if number % 2 else ""),
            "incorrect" if number % 2 else "correct",
        )
        for number in range(count)
    ]


def call(lake: Path, *words: str) -> None:
    """Run a command on a lake."""
    environment = {**os.environ, "FLYWHEEL_LAKE": str(lake)}
    subprocess.run([sys.executable, "-m", *words], env=environment, check=True, capture_output=True)


def write_lake(folder: Path) -> Path:
    """Return a lake with the starter suite."""
    call(folder, "store", "import", "starter")
    return folder


def append_kernels(lake: Path, texts: list[str]) -> None:
    """Append kernels that `evaluators run` will judge, as attempts of one policy."""
    with store.open(str(lake)) as opened:
        task = store.find_task(opened, TASK)
    kernels, policy = [builders.kernel(code=text) for text in texts], builders.policy()
    tables = {
        "policies": [policy],
        "kernels": kernels,
        "kernel_features": store.extract_row_features(kernels),
        "generations": [builders.generation(policy, task, kernel) for kernel in kernels],
    }
    with store.writer(str(lake), author="benchmark") as writer:
        writer.append(tables, "kernels")


def read_rate(lake: Path, name: str) -> float:
    """Return verdicts per second on kernels of this name, between the first and the last."""
    with store.open(str(lake)) as opened:
        [row] = opened.sql(
            "SELECT count(*) AS n, epoch(max(e.created_at) - min(e.created_at)) AS s"
            f" FROM evaluations AS e JOIN kernels USING (kernel_id) WHERE code LIKE '%of {name}%'"
        ).rows()
    return (row["n"] - 1) / row["s"]


@contextmanager
def serve(lake: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the URL and the process of a service whose judge is ready."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "evaluators", "serve", "--lake", str(lake)),
            *("--port", "0", *QUICK),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().partition(" ")[0]
        while not any(one["devices"] for one in read_health(url)["classes"].values()):
            time.sleep(0.2)
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def read_health(url: str) -> dict[str, Any]:
    """Return the health of a service."""
    return httpx2.get(f"{url}/v1/health", timeout=60).json()


def judge_all(url: str, texts: list[str]) -> list[Judgement]:
    """Return the judgements of kernels, requested at the same time."""

    async def ask() -> list[Judgement]:
        client = Client(url)
        found = await asyncio.gather(*(client.judge(TASK, text) for text in texts))
        await client.close()
        return found

    return asyncio.run(ask())


def compare_rates(folder: Path, kernels: int) -> Path:
    """Print both rates; return the lake of the service."""
    texts = [text for text, _ in write_kernels("rate", kernels)]
    direct, served = write_lake(folder / "direct"), write_lake(folder / "served")
    append_kernels(direct, texts)
    where = f"task_name = '{TASK}' AND path = 'kernel.py'"
    call(direct, "evaluators", "run", *QUICK, "--where", where)
    with serve(served) as (url, _):
        judge_all(url, texts)
        lone: list[float] = []
        for text, _status in write_kernels("alone", 6):
            began = time.perf_counter()
            [judgement] = judge_all(url, [text])
            lone.append(time.perf_counter() - began - (judgement.judged_s or 0.0))
    rates = read_rate(direct, "rate"), read_rate(served, "rate")
    print(f"{kernels} kernels, evaluators run: {rates[0]:.3f} per second")
    print(f"{kernels} kernels, through HTTP:   {rates[1]:.3f} per second")
    print(f"ratio {rates[1] / rates[0]:.2f}")
    print(f"a request on an idle service, beside judging: {statistics.median(lone):.2f} s")
    return served


async def ask_cached(url: str, clients: int, requests: int) -> list[float]:
    """Return the seconds of requests for one stored verdict, by clients at the same time."""
    body = {"task": TASK, "code": write_kernels("rate", 1)[0][0]}

    async def ask_often(client: httpx2.AsyncClient) -> list[float]:
        taken: list[float] = []
        for _ in range(requests):
            began = time.perf_counter()
            reply = await client.post(f"{url}/v1/judgements", json=body)
            taken.append(time.perf_counter() - began)
            assert reply.json()["status"] == "done", reply.text
        return taken

    opened = [httpx2.AsyncClient(timeout=120) for _ in range(clients)]
    try:
        found = await asyncio.gather(*map(ask_often, opened))
    finally:
        for client in opened:
            await client.aclose()
    return [seconds for taken in found for seconds in taken]


def measure_latency(lake: Path) -> None:
    """Print the latency of a stored verdict for 1, 64 and 512 clients."""
    with serve(lake) as (url, _):
        for clients in (1, *CLIENTS):
            began = time.perf_counter()
            taken = asyncio.run(ask_cached(url, clients, CACHED if clients == 1 else ROUNDS))
            wall = time.perf_counter() - began
            cuts = statistics.quantiles(taken, n=20)
            print(
                f"stored verdict, {clients:3} clients: p50 {cuts[9] * 1e3:.1f} ms, p95 "
                f"{cuts[18] * 1e3:.1f} ms, {len(taken) / wall:.0f} requests per second"
            )


def find_judge(server: int) -> int | None:
    """Return the process of the judge that a server has started."""
    for task in Path(f"/proc/{server}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            for child in (task / "children").read_text().split():
                return int(child)
    return None


def soak(folder: Path, seconds: float, seed: int) -> None:
    """Print what becomes of kernels that arrive while the judge is killed at random."""
    draw, lake = random.Random(seed), write_lake(folder / "soak")
    wanted: list[tuple[str, str]] = []
    kills = 0
    with serve(lake) as (url, process):

        async def run() -> list[Judgement]:
            nonlocal kills
            client = Client(url)
            asked: list[asyncio.Task[Judgement]] = []
            until = time.monotonic() + seconds
            next_kill = time.monotonic() + draw.uniform(*KILL_S)
            while time.monotonic() < until:
                if sum(not one.done() for one in asked) < 8:
                    text, status = write_kernels(f"soak {len(wanted)}", 2)[len(wanted) % 2]
                    wanted.append((text, status))
                    asked.append(asyncio.create_task(client.judge(TASK, text)))
                if time.monotonic() > next_kill:
                    judge = find_judge(process.pid)
                    if judge is not None:
                        os.kill(judge, signal.SIGKILL)
                        kills += 1
                    next_kill = time.monotonic() + draw.uniform(*KILL_S) + 10
                await asyncio.sleep(0.05)
            found = await asyncio.gather(*asked)
            await client.close()
            return list(found)

        found = asyncio.run(run())
    faults = [one for one in found if one.verdict is None]
    right = [one.verdict.status if one.verdict else None for one in found]
    wrong = sum(
        is_status is not None and is_status != status
        for is_status, (_, status) in zip(right, wanted, strict=True)
    )
    with store.open(str(lake)) as opened:
        twice = opened.sql(
            "SELECT count(*) AS n FROM (SELECT kernel_id FROM evaluations JOIN kernels"
            " USING (kernel_id) WHERE code LIKE '%of soak%' AND status <> 'evaluator_error'"
            " GROUP BY kernel_id HAVING count(*) > 1)"
        ).rows()[0]["n"]
    print(
        f"soak of {seconds:.0f} s: {len(found)} kernels, {kills} judges killed; {len(faults)} "
        f"without a verdict, {twice} judged twice, {wrong} with a wrong status"
    )


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--soak", type=float, default=1200.0, help="seconds; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = compare_rates(folder, options.kernels)
        measure_latency(served)
        if options.soak:
            soak(folder, options.soak, options.seed)


if __name__ == "__main__":
    main()
