"""The prompts of a dataset, each with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import store
from pipelines import Message, prompt_id, query
from store.errors import DatasetError
from trainers.datasets import records
from trainers.rollouts.attempts import ShownPrompt

if TYPE_CHECKING:
    import pyarrow as pa

_WANTED = (
    "prompt", "task_id", "template_hash", "purpose", "exemplar_kernel_ids", "exemplar_scores",
    "lake_id", "snapshot_id", "prompt_id",
)  # fmt: skip


def load_prompts(lake: store.Lake, wanted: str, limit: int | None = None) -> list[ShownPrompt]:
    """Return the distinct prompts of a dataset, in its order.

    Args:
        lake: The lake that records datasets, and that the rows will refer to.
        wanted: A folder with Parquet files, or NAME, NAME@TAG or NAME@SNAPSHOT; the newest match
            counts.
        limit: Largest number of prompts (default: all).

    Raises:
        UnknownName: no such dataset.
        DatasetError: its folder is missing, has no prompts, was changed, or refers to tasks or
            kernels that this lake lacks.
    """
    folder = _find_folder(lake, wanted)
    rows = _read_rows(folder)
    lacking = {"prompt", "task_id"} - set(rows.column_names)
    if lacking:
        raise DatasetError(
            f"{folder} has no column {' and '.join(sorted(lacking))}",
            "Datasets of `pipelines run` have both.",
        )
    made: dict[str, ShownPrompt] = {}
    for row in rows.select([name for name in _WANTED if name in rows.column_names]).to_pylist():
        one = _make_prompt(lake, folder, row)
        made.setdefault(one.prompt_id, one)
    found = list(made.values())[:limit]
    if not found:
        raise DatasetError(f"{folder} holds no prompt", "Give --limit 1 or more, or another.")
    _require_known(lake, folder, found)
    return found


def _find_folder(lake: store.Lake, wanted: str) -> Path:
    if Path(wanted).is_dir():
        return Path(wanted)
    row = records.find_recorded(lake, wanted)
    if row["path"] is None or not Path(row["path"]).is_dir():
        raise DatasetError(
            f"the folder of dataset {row['name']} is gone: {row['path']}",
            records.describe_remake(row),
        )
    return Path(row["path"])


def _read_rows(folder: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise DatasetError(f"{folder} holds no Parquet file", "Name a folder of `pipelines run`.")
    try:
        return pa.concat_tables(
            [pq.ParquetFile(file).read() for file in files], promote_options="default"
        )
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{folder} cannot be read: {error}") from error


def _make_prompt(lake: store.Lake, folder: Path, row: dict[str, Any]) -> ShownPrompt:
    messages = _read_messages(row["prompt"])
    if messages is None:
        raise DatasetError(f"{folder}: a prompt is neither text nor a list of role and content")
    shown, scores = row.get("exemplar_kernel_ids") or [], row.get("exemplar_scores") or []
    if len(shown) != len(scores):
        raise DatasetError(f"{folder}: a row has {len(shown)} exemplars and {len(scores)} scores")
    if row.get("prompt_id") not in (None, prompt_id(messages)):
        raise DatasetError(
            f"{folder}: the text of prompt {row['prompt_id'][:12]} was changed",
            "Make the dataset again with `pipelines run`.",
        )
    return ShownPrompt(
        task_id=row["task_id"],
        messages=messages,
        template_hash=row.get("template_hash"),
        purpose=row.get("purpose") or "eval",
        exemplar_kernel_ids=list(shown),
        exemplar_scores=list(scores),
        lake_id=row.get("lake_id") or lake.lake_id,
        snapshot_id=row.get("snapshot_id"),
    )


def _read_messages(prompt: Any) -> list[Message] | None:
    """Return TRL's two forms of a prompt, text or turns, as turns."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, list) or not prompt:
        return None
    turns: list[Message] = []
    for turn in cast("list[Any]", prompt):
        match turn:
            case {"role": str(role), "content": str(content)}:
                turns.append({"role": role, "content": content})
            case _:
                return None
    return turns


def _require_known(lake: store.Lake, folder: Path, asked: Sequence[ShownPrompt]) -> None:
    """Raise DatasetError if the lake lacks tasks or kernels that the rows will refer to."""
    import pyarrow as pa

    kernels = {kernel for one in asked for kernel in one.exemplar_kernel_ids}
    for table, key, given in (
        ("tasks", "task_id", {one.task_id for one in asked}),
        ("kernels", "kernel_id", kernels),
    ):
        known = pa.table({key: pa.array(sorted(given), pa.string())})
        sql = f"SELECT {key} AS id FROM given ANTI JOIN {table} USING ({key}) ORDER BY id"
        missing = query(lake, sql, given=known).to_pylist()
        if missing:
            raise DatasetError(
                f"{folder} is about {len(missing)} {table} that the lake at {lake.url} lacks, "
                f"such as {missing[0]['id'][:12]}",
                "Name the lake that it was made from with --lake.",
            )
