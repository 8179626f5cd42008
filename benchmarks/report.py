"""Run five benchmarks and write a page: the commands, their output, and the machine.

python benchmarks/report.py --folder DIR --out page.md       (takes about 30 GB and an hour)
python benchmarks/report.py --folder DIR --out page.md --kernels 10000 --evaluations 100000

Nothing on the page is written by hand: each table is the output of the command above it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("duckdb", "duckdb-extension-ducklake", "pyarrow", "datasets")


def machine() -> list[str]:
    """Return the lines that describe the machine and the software."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(
        ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    load = ", ".join(f"{one:.2f}" for one in os.getloadavg())
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return [
        f"- {os.cpu_count()} cores ({model}), {memory:.0f} GB memory, {platform.system()}",
        f"- Python {platform.python_version()}, {packages}",
        f"- commit {commit}, {datetime.now(UTC):%Y-%m-%d}, load average at the start {load}",
    ]


def section(title: str, text: str, command: list[str], folder: Path) -> list[str]:
    """Run one benchmark; return its part of the page."""
    shown = shlex.join(["python", f"benchmarks/{command[0]}", *command[1:]])
    print(shown, file=sys.stderr, flush=True)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(HERE / command[0]), *command[1:]],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(f"  {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
    if done.returncode:
        sys.exit(f"{shown} failed with {done.returncode}")
    place = shown.replace(str(folder), "DIR")
    return ["", f"## {title}", "", text, "", f"`{place}`", "", done.stdout.strip()]


def main() -> None:
    """Run all programs at the given sizes and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder for the lakes")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument(
        "--evaluations", type=int, default=10_000_000, help="evaluations of the largest lake"
    )
    parser.add_argument("--prompts", type=int, nargs="+", default=[1000, 100_000])
    parser.add_argument("--out", type=Path, required=True, help="page to write")
    given = parser.parse_args()
    full = given.kernels
    folder = str(given.folder)
    lakes = {
        f"{min(10_000, full)} of each": (min(10_000, full), min(10_000, full)),
        f"{full} of each": (full, full),
        f"{full} kernels, {given.evaluations} evaluations": (full, given.evaluations),
    }
    page = [
        "# Benchmarks",
        "",
        "`python benchmarks/report.py` wrote this page. [benchmarks/README.md]"
        "(../benchmarks/README.md) says",
        "what each program compares. One program runs both sides of a ratio, in alternation.",
        "",
        *machine(),
    ]
    page += section(
        "Bulk load",
        "Rows per second of `writer.load`, which checks every rule, key and reference, against "
        "DuckLake's INSERT..SELECT. The aim is 80 % or more of its speed in the row `together`.",
        ["load.py", "--kernels", str(full)],
        given.folder,
    )
    places: list[tuple[str, str, int]] = []
    for title, (kernels, evaluations) in lakes.items():
        place = f"{folder}/lake-{kernels}-{evaluations}"
        places.append((title, place, kernels))
        if not Path(place).exists():
            options = f"--lake {place} --kernels {kernels} --evaluations {evaluations}".split()
            page += section(f"Lake of {title}", "", ["generate.py", *options], given.folder)
    for title, place, kernels in places:
        page += section(
            f"Queries, {title}",
            "The aim is a ratio of 1.2 or less to hand-written SQL.",
            ["queries.py", "--lake", place],
            given.folder,
        )
        page += section(
            f"Appends, {title}",
            "The aims are at most 1.5 times the time of raw DuckLake for one bundle, and 70 % or "
            "more of its speed for a group.",
            ["append.py", "--lake", place, "--kernels", str(kernels), "--folder", folder],
            given.folder,
        )
    _, place, _ = places[1]
    page += section(
        f"Contrastive batch, {full} of each",
        "The aims are 4 s and at most 1.3 times the time of bare SQL for 1,000 prompts, and 60 s "
        "and under 4 GB for 100,000.",
        [
            *f"contrastive.py --lake {place} --folder {folder} --jsonl --prompts".split(),
            *map(str, given.prompts),
        ],
        given.folder,
    )
    page += section(
        "Start-up",
        "The aim is 0.3 s for `store --help`, without importing torch, transformers or trl.",
        ["startup.py", "--lake", places[0][1]],
        given.folder,
    )
    given.out.write_text("\n".join(page) + "\n", "utf-8")
    print(given.out)


if __name__ == "__main__":
    main()
