"""Size of receipts, and time to verify them.

python benchmarks/receipts.py --lake DIR

Makes the receipt of every judged kernel of the lake, and verifies each in one process: the first
one, and then all of them. Time is that of the call, without the process's start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import store
from store.receipts.check import verify
from store.receipts.receipt import make_receipt, write_receipt


def main() -> None:
    """Make and verify the receipts, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True, help="lake with judged kernels")
    parser.add_argument("--kernels", type=int, default=100, help="kernels at most")
    given = parser.parse_args()
    with store.open(given.lake) as lake:
        kernels = lake.sql(
            f"SELECT DISTINCT kernel_id FROM evaluations ORDER BY ALL LIMIT {given.kernels}"
        ).rows()
        receipts = [write_receipt(make_receipt(lake, row["kernel_id"])) for row in kernels]
    wall: list[float] = []
    processor: list[float] = []
    for receipt in receipts:
        begun, used = time.perf_counter(), time.process_time()
        verify(receipt)
        wall.append(1e3 * (time.perf_counter() - begun))
        processor.append(1e3 * (time.process_time() - used))
    sizes = [len(receipt) / 1e3 for receipt in receipts]
    print(
        f"{len(receipts)} receipts, load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores"
    )
    print("| | least | median | most | first |")
    print("|---|---:|---:|---:|---:|")
    for name, values in (("size KB", sizes), ("verify ms", wall), ("CPU ms", processor)):
        figures = (min(values), statistics.median(values), max(values), values[0])
        print(f"| {name} | {' | '.join(f'{value:.0f}' for value in figures)} |")


if __name__ == "__main__":
    main()
