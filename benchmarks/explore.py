"""Time the pages of `store explore`: first byte, complete page and size, for every page.

python benchmarks/explore.py --lake /data/lake --rounds 20

Starts a server of its own on a lake that generate.py made, asks for every page once to warm it, and
then for different tasks and kernels in turn, so that most answers are not in the cache of answers.
`first` is the time until the first byte, `page` until the last one.
"""

from __future__ import annotations

import argparse
import itertools
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import httpx2

import store

DEADLINE_S = 600.0
AIM_MS = 50
AIM_BYTES = 300_000


def list_addresses(lake: str, rounds: int) -> dict[str, list[str]]:
    """Return addresses of every page: `rounds` tasks and kernels of the lake."""
    with store.open(lake) as opened:
        rows = opened.sql(
            "SELECT kernel_id, task_id FROM pooled_speedups "
            f"ORDER BY hash(kernel_id), kernel_id LIMIT {rounds + 1}"
        ).rows()
        datasets = opened.sql("SELECT dataset_id FROM datasets ORDER BY dataset_id LIMIT 1").rows()
        runs = opened.sql("SELECT run_id FROM runs ORDER BY run_id LIMIT 3").rows()
        snapshots = range(1, opened.snapshot)
    kernels, tasks = [row["kernel_id"] for row in rows], [row["task_id"] for row in rows]
    tabs = ("", "?tab=code", "?tab=changes", "?tab=timings", "?tab=lineage")
    return {
        **{name: [f"/{name}"] for name in ("", "leaderboards", "tasks", "runs", "datasets")},
        "sessions": ["/sessions"],
        "suspects": ["/suspects"],
        "compare/snapshots": [f"/compare/snapshots?a={snapshot}" for snapshot in snapshots],
        "sql": ["/sql"],
        "search": [f"/search?q={kernel[:8]}" for kernel in kernels],
        "task": [f"/task/{task}" for task in tasks],
        "task, claims": [f"/task/{task}?tab=claims" for task in tasks],
        "task, reference": [f"/task/{task}?tab=reference" for task in tasks],
        **{
            f"kernel{tab.replace('?tab=', ', ')}": [f"/kernel/{kernel}{tab}" for kernel in kernels]
            for tab in tabs
        },
        "compare/kernels": [
            f"/compare/kernels?a={a}&b={b}" for a, b in itertools.pairwise(kernels)
        ],
        "run": [f"/run/{row['run_id']}" for row in runs],
        "dataset": [f"/dataset/{row['dataset_id']}" for row in datasets],
    }


def time_page(client: httpx2.Client, address: str) -> tuple[float, float, int]:
    """Return milliseconds to the first and to the last byte, and the number of bytes."""
    begun = time.perf_counter()
    size, first = 0, 0.0
    with client.stream("GET", address) as answer:
        for piece in answer.iter_raw():
            first = first or 1000 * (time.perf_counter() - begun)
            size += len(piece)
    assert answer.status_code == 200, (address, answer.status_code)
    return first, 1000 * (time.perf_counter() - begun), size


def quantile(values: list[float], share: float) -> float:
    """Return the value below which a share of the values is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


@contextmanager
def run_server(lake: str) -> Generator[str]:
    """Run `store explore` on a free port; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "store", "explore", "--lake", lake, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.match(r"(http://\S+)/ ", server.stdout.readline())
        assert found, "the server did not start"
        try:
            httpx2.get(f"{found[1]}/sql", timeout=None)  # a large lake may take minutes to open
            yield found[1]
        finally:
            server.terminate()


def main() -> None:
    """Print a table with one row for each page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    asked = parser.parse_args()
    addresses = list_addresses(asked.lake, asked.rounds)
    print("| page | first p50 ms | first p95 ms | page p50 ms | page p95 ms | largest KB |")
    print("|---|---|---|---|---|---|")
    firsts: list[float] = []
    with run_server(asked.lake) as url, httpx2.Client(base_url=url, timeout=DEADLINE_S) as client:
        for page, mine in addresses.items():
            if not mine:
                continue
            time_page(client, mine[0])
            later = mine[1:] or mine
            times = [time_page(client, later[i % len(later)]) for i in range(asked.rounds)]
            first, whole = [one[0] for one in times], [one[1] for one in times]
            firsts += first
            shown = [quantile(one, share) for one in (first, whole) for share in (0.5, 0.95)]
            cells = [*(f"{ms:.0f}" for ms in shown), f"{max(t[2] for t in times) / 1000:.0f}"]
            print(f"| {page or 'overview'} | {' | '.join(cells)} |", flush=True)
    print(
        f"\nfirst byte, all pages: median {statistics.median(firsts):.0f} ms, "
        f"p95 {quantile(firsts, 0.95):.0f} ms, aim {AIM_MS} ms"
    )


if __name__ == "__main__":
    main()
