"""Measures the time that other shapes add to a verdict, and what honest kernels do there.

    python benchmarks/shapes.py [--device cuda] [--only layer_norm/ …] [--rounds 3]

It judges the honest kernels of the starter suite as `evaluators run` does, each kernel of a task
after the other, and prints a line for each verdict. The share is the time of drawing and judging at
other shapes, over that of the rest of the verdict. Compiled kernels are built before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
from dataclasses import replace

from scoring.items import list_honest

from evaluators.device.fingerprint import find_architecture
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.other_shapes import name_outcome
from evaluators.scheduling.prebuild import describe_toolchain
from evaluators.worker.build_cache import Builds, default_root


def main() -> None:
    """Judge the kernels and print their shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of kernels' names")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    kernels = [
        item
        for item in list_honest(given.device)
        if item.name.startswith(tuple(f"starter/{one}" for one in given.only))
    ]
    print(f"load {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores")
    shares: list[float] = []
    judged = timed = left_out = 0
    outcomes: dict[str, int] = {}
    tools = describe_toolchain(find_architecture(given.device))
    with Bench(given.device, Builds(default_root(), tools)) as bench:
        for kernel, number in itertools.product(kernels, range(given.rounds + 1)):
            case = replace(kernel.make_case(), task_id=kernel.name.split("/")[1])
            tables = judge(case, bench, Config(draw_shapes=3 if number else 0))
            own, *others = tables["evaluations"]
            if not number or own["status"] != "correct":  # the first one has compiled the kernel
                continue
            log = own["log"] or ""
            drawing_s = json.loads(own["parts_s"])["drawing"]
            added_s = drawing_s + sum(row["wall_s"] for row in others)
            shares.append(added_s / (own["wall_s"] - drawing_s))
            judged += len(others)
            left_out += log.count("shapes left out to save time") and 3 - len(others)
            timed += len({row["evaluation_id"] for row in tables["timings"]}) - 1
            found = [name_outcome(row) for row in others]
            for outcome in found:
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
            print(
                f"{kernel.name}: {own['wall_s']:.2f} s, at shapes {added_s:.2f} s, "
                f"{shares[-1]:.0%}; {', '.join(found)}"
            )
    shares.sort()
    p95 = shares[min(len(shares) - 1, int(0.95 * len(shares)))]
    print(
        f"{len(shares)} verdicts: median {statistics.median(shares):.0%}, p95 {p95:.0%}; "
        f"{judged} shapes judged, {timed} timed, {left_out} left out; {outcomes}; "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
