"""Take the measurements of GPUs out of a lake, as the rows that ship with the repository.

evaluators run --device cuda:0 --lake DIR && python benchmarks/measured_rows.py --lake DIR

Run it where the GPU is. Logs, host names, card identities and quotes of kernels stay out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq

import store

_DEVICES = (
    "device_id IN (SELECT device_id FROM devices WHERE kind = 'cuda' AND $device IN ('', name))"
)
_EVALUATIONS = f"SELECT * FROM evaluations WHERE {_DEVICES} AND status <> 'evaluator_error'"
QUERIES = {
    "devices": f"SELECT * REPLACE (NULL AS host, NULL AS gpu_uuid) FROM devices WHERE {_DEVICES}",
    "runs": "SELECT * REPLACE (NULL AS host) FROM runs WHERE run_id IN "
    f"(SELECT run_id FROM evaluations WHERE {_DEVICES})",
    "evaluations": f"SELECT * REPLACE (NULL AS log) FROM ({_EVALUATIONS})",
    "analyses": "SELECT * FROM analyses WHERE author LIKE 'torch.profiler%' AND kernel_id IN "
    f"(SELECT kernel_id FROM ({_EVALUATIONS}))",
    "findings": "SELECT * REPLACE (NULL AS quote) FROM findings WHERE evaluation_id IN "
    f"(SELECT evaluation_id FROM ({_EVALUATIONS}))",
    "task_audits": f"SELECT * FROM task_audits WHERE {_DEVICES}",
    "timings": f"SELECT * FROM timings WHERE {_DEVICES}",
}


def main() -> None:
    """Write one Parquet file for each table that has rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--out", type=Path, default=Path("store/starter/measured"))
    parser.add_argument("--device", default="", help="GPU model, such as H200 (default: all)")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with store.open(arguments.lake) as lake:
        for name, query in QUERIES.items():
            rows = lake.sql(f"{query} ORDER BY ALL", {"device": arguments.device}).arrow()
            rows = rows.cast(lake.catalog.table(name).arrow_schema)
            if not rows.num_rows:
                continue
            pq.write_table(rows, arguments.out / f"{name}.parquet", compression="zstd")
            print(f"{name}: {rows.num_rows} rows")


if __name__ == "__main__":
    main()
