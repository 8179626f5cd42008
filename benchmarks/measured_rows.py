"""Take the measurements of GPUs out of a lake, as the rows that ship with the repository.

evaluators run --device cuda:0 --lake DIR && python benchmarks/measured_rows.py --lake DIR

Run it where the GPU is. Logs, host names and card identities stay out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq

import store

QUERIES = {
    "devices": "SELECT * REPLACE (NULL AS host, NULL AS gpu_uuid) FROM devices WHERE kind = 'cuda'",
    "runs": "SELECT * REPLACE (NULL AS host) FROM runs WHERE run_id IN "
    "(SELECT run_id FROM evaluations JOIN devices USING (device_id) WHERE kind = 'cuda')",
    "evaluations": "SELECT * REPLACE (NULL AS log) FROM evaluations WHERE device_id IN "
    "(SELECT device_id FROM devices WHERE kind = 'cuda') AND status <> 'evaluator_error'",
    "analyses": "SELECT * FROM analyses WHERE author LIKE 'torch.profiler%' AND kernel_id IN "
    "(SELECT kernel_id FROM evaluations JOIN devices USING (device_id) WHERE kind = 'cuda')",
    "findings": "SELECT * FROM findings WHERE evaluation_id IN "
    "(SELECT evaluation_id FROM evaluations JOIN devices USING (device_id) "
    "WHERE kind = 'cuda' AND status <> 'evaluator_error')",
    "task_audits": "SELECT * FROM task_audits WHERE device_id IN "
    "(SELECT device_id FROM devices WHERE kind = 'cuda')",
    "timings": "SELECT * FROM timings WHERE device_id IN "
    "(SELECT device_id FROM devices WHERE kind = 'cuda')",
}


def main() -> None:
    """Write one Parquet file for each table that has rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--out", type=Path, default=Path("store/starter/measured"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with store.open(arguments.lake) as lake:
        for name, query in QUERIES.items():
            rows = lake.run(f"{query} ORDER BY ALL").arrow()
            rows = rows.cast(lake.catalog.table(name).arrow_schema)
            if not rows.num_rows:
                continue
            pq.write_table(rows, arguments.out / f"{name}.parquet", compression="zstd")
            print(f"{name}: {rows.num_rows} rows")


if __name__ == "__main__":
    main()
