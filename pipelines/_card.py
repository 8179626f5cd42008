"""README.md of a dataset: configs and features for `datasets` and the Hub, lineage and licences."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines._render import render
from pipelines._select import register_picked, sql
from store.reader import view_names, view_text

if TYPE_CHECKING:
    import pyarrow as pa

    import store
    from pipelines._materialise import Dataset

CONFIG_NAME = "default"
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write(folder: Path, dataset: Dataset, schema: pa.Schema, files: list[Path]) -> None:
    """Write README.md and recipe.json into a dataset folder; both are free of times and paths."""
    facts = lineage(dataset)
    (folder / "recipe.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n", "utf-8")
    import yaml

    job = dataset.job
    head = yaml.safe_dump(
        _front_matter(dataset, schema, files), sort_keys=False, allow_unicode=True, width=1000
    )
    body = render(
        "card.md.j2",
        dataset_name=job.name,
        about=(job.module.__doc__ or "").strip().splitlines()[0],
        notes=dataset.notes,
        dropped=dataset.dropped,
        licences=dataset.licences,
        tokens_words=job.counter.words,
        split=job.split,
        folder_hint=f"datasets/{job.name}/{dataset.folder_name}",
        recipe=json.dumps(job.recipe(), indent=1, sort_keys=True),
        **{name: value for name, value in facts.items() if name != "recipe"},
    )
    (folder / "README.md").write_text(f"---\n{head}---\n\n{body}\n", "utf-8")


def lineage(dataset: Dataset) -> dict[str, Any]:
    """Return what a trainer needs to know of a dataset, as it stands in recipe.json."""
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


def licences(lake: store.Lake, lineage_rows: list[pa.Table]) -> list[dict[str, Any]]:
    """Return the licences of the tasks and kernels in a dataset: what, licence, texts."""
    import pyarrow as pa

    register_picked(lake, pa.concat_tables(lineage_rows))
    return lake.run(sql("shared", "licences")).rows()


def features(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return an Arrow schema as the features of a dataset card."""
    return [{"name": field.name} | _feature(field.type) for field in schema]


@functools.cache
def views_hash() -> str:
    """Return the sha256 over the SQL of all views, which decide rows like a pipeline's SQL."""
    texts = [[name, view_text(name)] for name in view_names()]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _front_matter(dataset: Dataset, schema: pa.Schema, files: list[Path]) -> dict[str, Any]:
    job = dataset.job
    names = {one["licence"] for one in dataset.licences}
    size = next((name for most, name in _SIZES if dataset.rows < most), "n>1M")
    licence: dict[str, Any] = {"license": "other", "license_name": "several-see-below"}
    if len(names) == 1 and names != {"not stated"}:
        licence = {"license": str(names.copy().pop()).lower()}
    return licence | {
        "pretty_name": job.name,
        "size_categories": [size],
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
                "features": features(schema),
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


def _feature(kind: pa.DataType) -> dict[str, Any]:
    import pyarrow.types as types

    if types.is_list(kind):
        inner = _feature(kind.value_type)
        return {"list": inner.get("struct") or inner["dtype"]}
    if types.is_struct(kind):
        return {"struct": [{"name": one.name} | _feature(one.type) for one in kind]}
    names = {"double": "float64", "float": "float32"}
    return {"dtype": names.get(str(kind), str(kind))}
