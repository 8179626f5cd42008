"""Seconds and bytes to publish a first edition, and an edition with 1 % more rows.

python benchmarks/publish.py --kernels 20000

generate.py makes the lake, and the server of tests/hub on loopback replaces the Hub. This server
identifies whole files by their sha256, so the second edition sends every file that changed at all.
The real Hub's chunk store would also share the unchanged parts of these files; this program does
not measure that.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="flywheel-bench-hf-")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import generate
from hub.server import TOKEN, HubServer

import store
from store.hub import edition_writer
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import Publication, publish

REPO = "bench/lake"


def main() -> None:
    """Make a lake, publish it, add rows, publish again, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", type=int, default=20_000)
    parser.add_argument(
        "--more", type=float, default=0.01, help="share of rows to add for the second edition"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flywheel-bench-") as folder, HubServer() as server:
        lake = f"{folder}/lake"
        hub = Hub(server.url, TOKEN)
        rows = _more(lake, asked.kernels, seed=0)
        first, first_s, first_sent = _time_publish(lake, "v1", hub, server)
        added = _more(lake, int(asked.kernels * asked.more), seed=1) - rows
        second, second_s, second_sent = _time_publish(lake, "v2", hub, server)
        print("| | rows | files | s | MB sent | of MB | share |")
        print("|---|---|---|---|---|---|---|")
        for name, count, done, seconds, sent in (
            ("first edition", rows, first, first_s, first_sent),
            (f"{100 * added / rows:.1f} % more rows", added, second, second_s, second_sent),
        ):
            files = sum(one.what in ("new", "changed") for one in done.changes)
            print(
                f"| {name} | {count} | {files} of {len(done.changes)} | {seconds:.1f} "
                f"| {sent / 1e6:.2f} | {done.all_bytes / 1e6:.2f} "
                f"| {100 * sent / done.all_bytes:.0f} % |"
            )
        size = len(server.files(REPO)[edition_writer.CATALOG])
        print(f"\nThe frozen catalog is {size / 1e3:.0f} kB.")


def _more(lake: str, kernels: int, seed: int) -> int:
    """Add generated rows to a lake; return how many rows it has then."""
    tasks = max(5, kernels // 80)
    size = generate.Size(kernels=kernels, evaluations=kernels, tasks=tasks, seed=seed)
    generate.make(lake, size, say=lambda line: print(line, file=sys.stderr))
    with store.open(lake) as opened:
        counts = [
            opened.sql(f"SELECT count(*) AS n FROM {table}").rows()[0]["n"]
            for table in opened.catalog.tables
        ]
    return sum(counts)


def _time_publish(
    lake: str, tag: str, hub: Hub, server: HubServer
) -> tuple[Publication, float, int]:
    """Publish an edition; return it, its seconds, and the bytes that the server received."""
    got = server.received_bytes
    began = time.perf_counter()
    done = publish(lake, REPO, Options(tag=tag), hub=hub)
    return done, time.perf_counter() - began, server.received_bytes - got


if __name__ == "__main__":
    main()
