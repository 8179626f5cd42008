"""Records a dataset in a lake: its run, its recipe, and the kernels of each row."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import store
from pipelines.datasets.job import Dataset


def record_dataset(dataset: Dataset, folder: Path, started_at: datetime) -> int | None:
    """Append the run, the dataset and its rows to the lake; None if the lake has it."""
    import pyarrow as pa

    job, dataset_id = dataset.job, dataset.dataset_id
    recipe = json.dumps(job.recipe(), sort_keys=True)
    lineage = pa.concat_tables(dataset.lineage)
    rows = lineage.append_column(
        "dataset_id", pa.repeat(pa.scalar(dataset_id), lineage.num_rows)
    ).append_column("row_index", pa.array(range(lineage.num_rows), pa.int64()))
    rows = rows.append_column("split", pa.repeat(pa.scalar(job.split), lineage.num_rows))
    common = {"lake_id": job.lake.lake_id, "snapshot_id": job.lake.snapshot}
    run = store.make_run(
        kind="pipeline",
        name=job.pipeline,
        config=recipe,
        lake_id=job.lake.lake_id,
        snapshot_id=job.lake.snapshot,
        started_at=started_at,
    )
    described = common | {
        "dataset_id": dataset_id,
        "run_id": run["run_id"],
        "name": job.name,
        "pipeline": job.pipeline,
        "dataset_type": dataset.dataset_type,
        "purpose": job.request.purpose,
        "recipe": recipe,
        "seed": job.request.seed,
        "content_hash": dataset.content_hash,
        "rows": dataset.rows,
        "tokens": dataset.tokens,
        "path": str(folder.resolve()),
    }
    with store.writer(job.lake.url, author=f"pipelines {job.pipeline}") as writer:
        return writer.load(
            {
                "runs": [run],
                "run_ends": [store.make_end(run["run_id"])],
                "datasets": [described],
                "dataset_rows": rows,
            },
            f"dataset {job.name}: {dataset.rows} rows",
            bundle_id=store.ids.content_id("dataset", dataset_id),
        )
