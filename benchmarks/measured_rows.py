"""Take the measurements of GPUs out of a lake, as the rows that ship with the repository.

evaluators run --on cuda:0 --lake DIR && python benchmarks/measured_rows.py --lake DIR

For each GPU model, it takes the verdicts of the newest version of an evaluator only. Logs, host
names, card identities and quotes of kernels stay out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pyarrow.parquet as pq

import store

_GPUS = "SELECT device_id FROM devices WHERE kind = 'cuda' AND $device IN ('', name)"
_EVALUATIONS = (
    "SELECT evaluations.* FROM evaluations JOIN devices USING (device_id) "
    f"WHERE device_id IN ({_GPUS}) AND status <> 'evaluator_error' "
    "QUALIFY evaluator_version = max(evaluator_version) OVER (PARTITION BY evaluator, name)"
)
_OF_EVALUATIONS = f"evaluation_id IN (SELECT evaluation_id FROM ({_EVALUATIONS}))"
_AUDITS = f"SELECT * FROM task_audits WHERE device_id IN ({_GPUS})"
QUERIES = {
    "devices": "SELECT * REPLACE (NULL AS host, NULL AS gpu_uuid) FROM devices WHERE device_id IN "
    f"(SELECT device_id FROM ({_EVALUATIONS}) UNION SELECT device_id FROM ({_AUDITS}))",
    "runs": "SELECT * REPLACE (NULL AS host) FROM runs WHERE run_id IN "
    f"(SELECT run_id FROM ({_EVALUATIONS}))",
    "workloads": "SELECT * FROM workloads WHERE name <> 'default' AND workload_id IN "
    f"(SELECT workload_id FROM ({_EVALUATIONS}))",
    "evaluations": f"SELECT * REPLACE (NULL AS log) FROM ({_EVALUATIONS})",
    "analyses": "SELECT * FROM analyses WHERE author LIKE 'torch.profiler%' AND kernel_id IN "
    f"(SELECT kernel_id FROM ({_EVALUATIONS})) AND (evaluation_id IS NULL OR {_OF_EVALUATIONS})",
    "findings": f"SELECT * REPLACE (NULL AS quote) FROM findings WHERE {_OF_EVALUATIONS}",
    "task_audits": _AUDITS,
    "timings": f"SELECT * FROM timings WHERE {_OF_EVALUATIONS}",
    "session_spreads": "SELECT * FROM session_spreads WHERE $device IN ('', device)",
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
