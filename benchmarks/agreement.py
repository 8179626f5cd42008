"""Whether two lakes measured the same speedups: intervals that overlap, and relative differences.

    python benchmarks/agreement.py LAKE OTHER [--clock gpu] [--baseline eager]

Compares kernels that both lakes timed on the same task in a quiet session by the same clock. Use it
to compare two versions of the judge, or two machines, on the same kernels.
"""

from __future__ import annotations

import argparse
import math
import statistics
from typing import Any

import store

SPEEDUPS = """
SELECT kernel_id, task_id, speedup, speedup_low, speedup_high
FROM speedups
WHERE clock = $clock AND baseline = $baseline AND NOT disturbed AND NOT unresolved
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id ORDER BY measured_at DESC, session_id
) = 1
"""


def read_speedups(url: str, clock: str, baseline: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the newest quiet speedup of each kernel of a lake, by kernel and task."""
    with store.open(url) as lake:
        rows = lake.run(SPEEDUPS, {"clock": clock, "baseline": baseline}).arrow().to_pylist()
    return {(row["kernel_id"], row["task_id"]): row for row in rows}


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the intervals of two speedups overlap."""
    return (
        one["speedup_low"] <= other["speedup_high"] and other["speedup_low"] <= one["speedup_high"]
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lake")
    parser.add_argument("other")
    parser.add_argument("--clock", default="gpu")
    parser.add_argument("--baseline", default="eager")
    options = parser.parse_args()
    one, other = (
        read_speedups(url, options.clock, options.baseline) for url in (options.lake, options.other)
    )
    shared = sorted(one.keys() & other.keys())
    if not shared:
        raise SystemExit(f"no kernel has a quiet session by {options.clock} in both lakes")
    print("kernel        speedup  interval        other  interval        overlap")
    for key in shared:
        ours, theirs = one[key], other[key]
        print(
            f"{key[0][:12]}  {ours['speedup']:7.3f}"
            f"  [{ours['speedup_low']:.3f}, {ours['speedup_high']:.3f}]"
            f"  {theirs['speedup']:7.3f}"
            f"  [{theirs['speedup_low']:.3f}, {theirs['speedup_high']:.3f}]"
            f"  {'yes' if overlap(ours, theirs) else 'no'}"
        )
    apart = [abs(math.log(one[key]["speedup"] / other[key]["speedup"])) for key in shared]
    overlapping = sum(overlap(one[key], other[key]) for key in shared)
    print(
        f"{len(shared)} kernels, {overlapping} with overlapping intervals; relative difference:"
        f" median {math.expm1(statistics.median(apart)):.2%}, largest {math.expm1(max(apart)):.2%}"
    )


if __name__ == "__main__":
    main()
