"""Prompts: those of a dataset, or of one training step or search round over a pinned snapshot.

Draw and text of a step's prompts equal those of the pipeline contrastive-batch. A prompt is a pure
function of lake, snapshot, seed and task, so a step can be rendered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pipelines
import store
from pipelines import ExemplarOptions, Job, Message, Purpose, Request, Strategy, prompt_id
from pipelines.selection.scores import find_device_kind
from store import read_sql
from store.commandline.members import find_member
from store.errors import DatasetError, EmptyDataset, FlywheelError, LeakageFound
from trainers.datasets import records
from trainers.rollouts.attempts import ShownPrompt

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

    Raises:
        UnknownName: no such dataset.
        DatasetError: its folder is missing, has no prompts, was changed, or refers to tasks or
            kernels that this lake lacks.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(wanted)
    if not folder.is_dir():
        row = records.find_recorded(lake, wanted)
        if row["path"] is None or not Path(row["path"]).is_dir():
            raise DatasetError(
                f"the folder of dataset {row['name']} is gone: {row['path']}",
                records.describe_remake(row),
            )
        folder = Path(row["path"])
    files = sorted(folder.rglob("*.parquet"))
    if not files:
        raise DatasetError(f"{folder} holds no Parquet file", "Name a folder of `pipelines run`.")
    try:
        rows = pa.concat_tables(
            [pq.ParquetFile(file).read() for file in files], promote_options="default"
        )
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{folder} cannot be read: {error}") from error
    lacking = {"prompt", "task_id"} - set(rows.column_names)
    if lacking:
        raise DatasetError(
            f"{folder} has no column {' and '.join(sorted(lacking))}",
            "Datasets of `pipelines run` have both.",
        )
    by_id: dict[str, ShownPrompt] = {}
    for row in rows.select([name for name in _WANTED if name in rows.column_names]).to_pylist():
        # TRL has two forms of a prompt: text, or turns.
        turns: Any = row["prompt"]
        messages: list[Message] = [{"role": "user", "content": turns}]
        if not isinstance(turns, str):
            messages = []
            for turn in turns if turns and isinstance(turns, list) else [None]:
                match turn:
                    case {"role": str(role), "content": str(content)}:
                        messages.append({"role": role, "content": content})
                    case _:
                        raise DatasetError(
                            f"{folder}: a prompt is neither text nor a list of role and content"
                        )
        shown, scores = row.get("exemplar_kernel_ids") or [], row.get("exemplar_scores") or []
        if len(shown) != len(scores):
            raise DatasetError(
                f"{folder}: a row has {len(shown)} exemplars and {len(scores)} scores"
            )
        identity = prompt_id(messages)
        if row.get("prompt_id") not in (None, identity):
            raise DatasetError(
                f"{folder}: the text of prompt {row['prompt_id'][:12]} was changed",
                "Make the dataset again with `pipelines run`.",
            )
        prompt = ShownPrompt(
            task_id=row["task_id"],
            messages=messages,
            template_hash=row.get("template_hash"),
            purpose=row.get("purpose") or "eval",
            exemplar_kernel_ids=list(shown),
            exemplar_scores=list(scores),
            lake_id=row.get("lake_id") or lake.lake_id,
            snapshot_id=row.get("snapshot_id"),
        )
        by_id.setdefault(identity, prompt)
    prompts = list(by_id.values())[:limit]
    if not prompts:
        raise DatasetError(f"{folder} holds no prompt", "Give --limit 1 or more, or another.")

    # The rows of attempts will refer to these tasks and kernels.
    exemplars = {kernel for prompt in prompts for kernel in prompt.exemplar_kernel_ids}
    for table, key, ids in (
        ("tasks", "task_id", {prompt.task_id for prompt in prompts}),
        ("kernels", "kernel_id", exemplars),
    ):
        named = pa.table({key: pa.array(sorted(ids), pa.string())})
        sql = f"SELECT {key} AS id FROM named ANTI JOIN {table} USING ({key}) ORDER BY id"
        missing = pipelines.query(lake, sql, named=named).to_pylist()
        if missing:
            raise DatasetError(
                f"{folder} is about {len(missing)} {table} that the lake at {lake.url} lacks, "
                f"such as {missing[0]['id'][:12]}",
                "Name the lake that it was made from with --lake.",
            )
    return prompts


@dataclass(frozen=True, kw_only=True)
class Draw(ExemplarOptions):
    """How exemplars are drawn."""

    arm: Strategy
    """Strategy of contrastive-batch."""
    device: str
    """Name of the device whose speedups are shown."""
    other_device: str | None = None
    """Device whose speedups are shown for tasks with none to show on `device`."""
    namespace: str | None = None
    """Namespace of the attempts; prompts show its kernels and those without one (None: all)."""
    purpose: Purpose = "train"
    """Split of the tasks: train, or eval for those of the test split."""
    pipeline: str = "contrastive-batch"
    """Pipeline that makes the prompts."""


def derive_step_seed(seed: int, step: int, draw: int = 0) -> int:
    """Return the seed of one step's draws; the draws themselves hash it with each task."""
    return int(store.ids.content_id("step", str(seed), str(step), str(draw))[:15], 16)


def check_pipeline(name: str) -> bool:
    """Return whether the prompts of a pipeline show kernels; those of rl-prompts show none.

    Raises FlywheelError if it shows kernels but cannot keep those of other arms out.
    """
    module = find_member("pipelines", name).load()
    options = {field.name for field in fields(module.Config)}
    if "exemplars" in options and not {"strategy", "namespace"} <= options:
        raise FlywheelError(
            f"{name} cannot make the prompts of a search: it shows kernels of all variants",
            "Use contrastive-batch, or rl-prompts for prompts without kernels.",
        )
    return "strategy" in options


def render_prompts(
    lake: store.Lake, draw: Draw, seed: int, wanted: Sequence[str]
) -> list[ShownPrompt]:
    """Return one prompt per task, in order; a repeated task gets another draw.

    A task without kernels that differ, on the device of the draw and then on its other device, gets
    a prompt without exemplars.

    The seed is that of the step (`derive_step_seed`). Raises LeakageFound: a task is not of the
    draw's purpose, or is trivial.
    """
    times = Counter(wanted)
    known: dict[str, list[ShownPrompt]] = {}
    if draw.arm != "none":
        known = _render_tasks(lake, draw, seed, set(times), max(times.values()))
    missing = set(times) - set(known)
    if missing and draw.arm != "none" and draw.other_device is not None:
        elsewhere = replace(draw, device=draw.other_device, clock=None)
        kind = find_device_kind(lake, draw.device)
        known |= _render_tasks(lake, elsewhere, seed, missing, max(times.values()), kind)
        missing -= set(known)
    if missing:
        known |= _render_tasks(lake, replace(draw, arm="none"), seed, missing, 1)
    foreign = sorted(set(times) - set(known))
    if foreign:
        weak = lake.run(
            "SELECT task_id FROM weak_tasks WHERE task_id IN (SELECT unnest($1))", [foreign]
        ).rows()
        if weak:
            raise LeakageFound(
                f"task {weak[0]['task_id'][:12]} is trivial ({len(weak)} such)",
                "Make the list again by `pipelines run rl-prompts`, without --include-trivial.",
            )
        raise LeakageFound(
            f"task {foreign[0][:12]} is not one for --purpose {draw.purpose} ({len(foreign)} such)",
            "Make the list of tasks by `pipelines run rl-prompts` with this purpose.",
        )
    seen: Counter[str] = Counter()
    prompts: list[ShownPrompt] = []
    for task in wanted:
        # Equal draws are one row of contrastive-batch.
        prompts.append(known[task][seen[task] % len(known[task])])
        seen[task] += 1
    return prompts


def render_bare_prompts(lake: store.Lake, draw: Draw, wanted: Sequence[str]) -> list[ShownPrompt]:
    """Return the prompts of tasks without exemplars, in order."""
    return render_prompts(lake, replace(draw, arm="none"), 0, wanted)


def _render_tasks(
    lake: store.Lake,
    draw: Draw,
    seed: int,
    tasks: set[str],
    per_task: int,
    device_kind: str | None = None,
) -> dict[str, list[ShownPrompt]]:
    """Return the prompts by task; tasks without exemplars are left out."""
    module = find_member("pipelines", draw.pipeline).load()
    options = {
        "strategy": draw.arm,
        "per_task": per_task,
        "device": draw.device,
        "device_kind": device_kind,
        "namespace": draw.namespace,
        **pipelines.copy_exemplar_options(draw),
    }
    # A pipeline without exemplars, such as rl-prompts, has none of these options.
    known = {field.name for field in fields(module.Config)}
    job = Job(
        lake=lake,
        pipeline=draw.pipeline,
        module=module,
        config=module.Config(**{name: options[name] for name in options if name in known}),
        request=Request(purpose=draw.purpose, seed=seed, tasks=tuple(sorted(tasks))),
        name=draw.pipeline,
        counter=pipelines.make_counter(None),
    )
    try:
        rows = pipelines.select_rows(job).rows
    except EmptyDataset:
        return {}
    found: dict[str, list[ShownPrompt]] = {}
    for _, batch in pipelines.fetch_texts(lake, rows, max(rows.num_rows, 1)):
        for row in batch:
            asked = ShownPrompt(
                task_id=row.task.task_id,
                messages=module.render(row)["prompt"],
                template_hash=pipelines.template_hash(module.TEMPLATE),
                purpose=draw.purpose,
                exemplar_kernel_ids=row.columns.get("exemplar_kernel_ids", []),
                exemplar_scores=row.columns.get("exemplar_scores", []),
                lake_id=lake.lake_id,
                snapshot_id=lake.snapshot,
                namespace=draw.namespace,
            )
            found.setdefault(asked.task_id, []).append(asked)
    return found


def find_group_snapshots(lake: store.Lake, groups: Sequence[str]) -> dict[str, int]:
    """Return the snapshot that stored attempts name, by group; groups without attempts have none.

    Attempts that were pulled from another lake do not count: they name its snapshots.
    """
    rows = lake.run(read_sql(__file__, "group_snapshots"), [list(groups), lake.lake_id]).rows()
    return {row["group_id"]: row["snapshot_id"] for row in rows}
