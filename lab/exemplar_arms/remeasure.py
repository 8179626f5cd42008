"""Measures the best kernels of every namespace of a search again, by the full protocol.

python -m lab.exemplar_arms.remeasure --lake LAKE --device cuda:0

The primary figure counts these sessions alone (docs/runs/primary.sql), so that a lucky session of
the cheap protocol is worth nothing.
"""

from __future__ import annotations

import argparse
import sys

import store
from evaluators import judge
from evaluators.scheduling.pool import Pool
from store import read_sql
from trainers.training import judging


def main() -> None:
    """Judge the kernels that no such run has measured, and print how many there are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lake", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="judges on each device")
    parser.add_argument("--kernels", type=int, default=1, help="of each namespace and task")
    parser.add_argument("--judge", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    config: judge.Config = judging.parse_options(tuple(given.judge))
    with store.writer(given.lake, author="remeasure") as writer:
        writer.flush()  # a killed run leaves its last verdicts in the spool
        with writer.reader() as lake:
            rows = lake.run(read_sql(__file__, "unmeasured_bests"), [given.kernels]).rows()
    pairs = [(row["kernel_id"], row["task_id"]) for row in rows]
    if pairs:
        with Pool(given.lake, given.device, config, workers=given.workers, remeasure=True) as pool:
            pool.judge(pairs)
    sys.stdout.write(f"measured again: {len(pairs)} kernels\n")


if __name__ == "__main__":
    main()
