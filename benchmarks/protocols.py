"""Kernels per minute of the two protocols, on the same kernels in one run.

python benchmarks/protocols.py --kernels 6 --rounds 2
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import store
from evaluators import judge
from evaluators.device.placement import choose_place
from evaluators.scheduling import contract
from evaluators.scheduling.cases import read_cases
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.scheduling.run import Selection, find_pending
from store.importers import starter
from store.importers.reading.pieces import run_import


def main() -> None:
    """Print seconds per kernel of each protocol, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    place = choose_place(given.device)
    spent: dict[str, list[float]] = {"full": [], "training": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        JudgeProcess("judge", place.device, judge.Config(draw_shapes=0), place.cores) as process,
    ):
        lake = str(Path(folder) / "lake")
        with store.writer(lake, author="benchmark") as writer:
            run_import(writer, starter, None, starter.Config(measured=False))
        chosen = Selection(where="regexp_matches(path, '/native[.]py')", limit=given.kernels)
        with store.open(lake) as opened:
            kernels = find_pending(opened, contract.load_default(), [process.row], chosen)
            cases = list(read_cases(opened, kernels, process.row["name"]))
        for case in cases:  # each task is loaded once before it is timed
            process.judge(replace(case, protocol="training"))
            for _ in range(given.rounds):
                for protocol, seconds in spent.items():
                    begin = time.perf_counter()
                    [row] = process.judge(replace(case, protocol=protocol))["evaluations"]
                    if row["status"] == "correct":
                        seconds.append(time.perf_counter() - begin)
        name = process.row["name"]
    for protocol, seconds in spent.items():
        mean = statistics.mean(seconds)
        print(f"{protocol}: {len(seconds)} verdicts on {name}, {60 / mean:.1f} kernels/min")
    ratio = statistics.mean(spent["full"]) / statistics.mean(spent["training"])
    print(f"training gives {ratio:.1f} times as many verdicts as full")


if __name__ == "__main__":
    main()
