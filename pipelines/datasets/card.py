"""README.md of a dataset: configs and features for `datasets` and the Hub, lineage, licenses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipelines.rendering.messages import render
from store.hub import viewer

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.datasets.job import Dataset

CONFIG_NAME = "default"


def write(folder: Path, dataset: Dataset, schema: pa.Schema, files: list[Path]) -> None:
    """Write README.md and recipe.json into a dataset folder; both are free of times and paths."""
    facts = collect_facts(dataset)
    (folder / "recipe.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")

    job = dataset.job
    names = {row["license"] for row in count_licenses(dataset)}
    license: dict[str, Any] = {"license": "other", "license_name": "several-see-below"}
    if len(names) == 1 and names != {"not stated"}:
        license = {"license": str(names.copy().pop()).lower()}
    front = license | {
        "pretty_name": job.name,
        "size_categories": [viewer.name_size(dataset.rows)],
        "task_categories": ["text-generation"],
        "tags": ["gpu", "kernels", "code-generation", "kernel-flywheel", "trl"],
        "configs": [
            {
                "config_name": CONFIG_NAME,
                "data_files": [
                    {"split": job.split, "path": f"data/{CONFIG_NAME}/{job.split}-*.parquet"}
                ],
                "default": True,
            }
        ],
        "dataset_info": [
            {
                "config_name": CONFIG_NAME,
                "features": viewer.describe_features(schema),
                "splits": [
                    {
                        "name": job.split,
                        "num_bytes": dataset.num_bytes,
                        "num_examples": dataset.rows,
                    }
                ],
                "download_size": sum(file.stat().st_size for file in files),
                "dataset_size": dataset.num_bytes,
            }
        ],
    }
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=1000)
    body = render(
        "card.md.j2",
        dataset_name=job.name,
        about=(job.module.__doc__ or "").strip().partition("\n")[0],
        notes=dataset.notes,
        dropped=dataset.dropped,
        licenses=count_licenses(dataset),
        tokens_words=job.counter.words,
        split=job.split,
        folder_hint=f"datasets/{job.name}/{dataset.folder_name}",
        recipe=json.dumps(job.recipe(), indent=1, sort_keys=True),
        **{name: value for name, value in facts.items() if name != "recipe"},
    )
    (folder / "README.md").write_text(f"---\n{head}---\n\n{body}\n", "utf-8")


def collect_facts(dataset: Dataset) -> dict[str, Any]:
    """Return the content of recipe.json, which trainers read."""
    job = dataset.job
    return {
        "dataset_id": dataset.dataset_id,
        "pipeline": job.pipeline,
        "dataset_type": dataset.dataset_type,
        "purpose": job.request.purpose,
        "lake_id": job.lake.lake_id,
        "snapshot_id": job.lake.snapshot,
        "seed": job.request.seed,
        "rows": dataset.rows,
        "tokens": dataset.tokens,
        "content_hash": dataset.content_hash,
        "recipe": job.recipe(),
    }


def count_licenses(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the number of texts of a dataset under each license: kind, license, texts."""
    counts = Counter(
        (what + "s", license or "not stated") for (what, _), license in dataset.licenses.items()
    )
    return [
        {"what": what, "license": license, "texts": texts}
        for (what, license), texts in sorted(
            counts.items(), key=lambda item: (item[0][0] != "tasks", -item[1], item[0][1])
        )
    ]
