"""Peak memory of bulk load, check, publish and pull of many rows.

python benchmarks/volume.py --lake DIR --kernels 2000000 --evaluations 10000000
python benchmarks/volume.py --lake DIR --kernels 1000000 --evaluations 3000000 --pull

Every step runs in a process of its own, which gets the generated rows through a pipe. With
`--pull`, the lake is published to the server of tests/hub on loopback, which stands for the Hub,
and pulled from there into a new lake. The lake stays in DIR.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ["HF_HUB_DISABLE_XET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import pyarrow as pa
from generate import Size, Source
from hub.server import TOKEN, HubServer

import store
from store.bounds import ParquetLimits
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.lake.location import Location
from store.upkeep import integrity

REPO = "bench/lake"
TAG = "volume"


def load(url: str, _: str) -> None:
    """Load the tables that come through standard input: a line with a name, an Arrow stream."""
    given: Any = sys.stdin.buffer
    with store.writer(url, author="benchmarks") as writer:
        while name := given.readline().decode().strip():
            with pa.ipc.open_stream(given) as rows:
                writer.load({name: rows}, f"generated {name}", bundle_id=f"generated {name}")


def check(url: str, _: str) -> None:
    """Read everything and test it."""
    if problems := integrity.check(Location.of(url)):
        sys.exit(str(problems))


def send(url: str, hub: str) -> None:
    """Publish the newest snapshot."""
    publish(url, REPO, Options(tag=TAG), hub=Hub(hub, TOKEN))


def receive(url: str, hub: str) -> None:
    """Pull what was published."""
    limits = ParquetLimits(max_file_gb=4, max_total_gb=64)
    pull(f"{url}-pulled", REPO, hub=Hub(hub, TOKEN), limits=limits)


STEPS: dict[str, Callable[[str, str], None]] = {
    "load": load,
    "check": check,
    "publish": send,
    "pull": receive,
}


def measure(step: str, url: str, hub: str = "", source: Source | None = None) -> None:
    """Run a step in a process of its own; print its line of the table."""
    process: Any
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--step", step, url, hub]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process.stdin as sink:
        for name, reader in _read_tables(source):
            sink.write(f"{name}\n".encode())
            with pa.ipc.new_stream(sink, reader.schema) as stream:
                for batch in reader:
                    stream.write_batch(batch)
    peak_gb = float(process.stdout.read() or 0) / 2**20
    if process.wait():
        sys.exit(f"{step} failed")
    print(f"| {step} | {time.perf_counter() - begun:.0f} | {peak_gb:.2f} |", flush=True)


def _read_tables(source: Source | None) -> Iterator[tuple[str, pa.RecordBatchReader]]:
    if source is not None:
        yield from ((name, source.reader(name)) for name in source.tables)


def run(step: str, url: str, hub: str) -> None:
    """Be one step, and print the highest memory of this process in kB."""
    STEPS[step](url, hub)
    # Not ru_maxrss, which begins with the memory of the process that started this one.
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def main() -> None:
    """Measure every step on a new lake."""
    if sys.argv[1:2] == ["--step"]:
        return run(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lake", required=True, help="folder of the new lake")
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--evaluations", type=int, default=1_000_000)
    parser.add_argument("--pull", action="store_true", help="publish and pull it as well")
    given = parser.parse_args()
    size = Size(kernels=given.kernels, evaluations=given.evaluations)
    print("| step | s | peak GB |\n|---|---:|---:|")
    measure("load", given.lake, source=Source(size))
    measure("check", given.lake)
    if given.pull:
        with ExitStack() as held:
            os.environ["HF_HOME"] = held.enter_context(
                tempfile.TemporaryDirectory(prefix="hub-", dir=Path(given.lake).parent)
            )
            hub = held.enter_context(HubServer())
            measure("publish", given.lake, hub.url)
            measure("pull", given.lake, hub.url)
    with store.open(given.lake) as lake:
        counts = " + ".join(f"(SELECT count(*) FROM {name})" for name in lake.catalog.tables)
        rows = lake.run(f"SELECT {counts} AS n").one()
    print(f"\n{rows['n']:,} rows" if rows else "")
    return None


if __name__ == "__main__":
    main()
