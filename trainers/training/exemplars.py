"""Prompts of one training step: tasks with exemplars from a pinned snapshot.

Draw and text equal those of the pipeline contrastive-batch. A prompt is a pure function of lake,
snapshot, seed and task, so a step can be rendered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import pipelines
import store
from pipelines import ExemplarOptions, Job, Request, Row, contrastive_batch
from store.errors import EmptyDataset, LeakageFound
from trainers.rollouts.attempts import ShownPrompt

Arm: TypeAlias = Literal["bucket", "random", "island", "none", "shuffled"]
_PURPOSE = "train"


@dataclass(frozen=True, kw_only=True)
class Draw(ExemplarOptions):
    """How exemplars are drawn."""

    arm: Arm
    """bucket, random, island and none are strategies of contrastive-batch; shuffled is bucket with
    the scores of a prompt dealt out anew among its kernels."""
    device: str
    """Name of the device whose speedups are shown."""


def derive_step_seed(seed: int, step: int, draw: int = 0) -> int:
    """Return the seed of one step's draws; the draws themselves hash it with each task."""
    return int(store.ids.content_id("step", str(seed), str(step), str(draw))[:15], 16)


def render_prompts(
    lake: store.Lake, draw: Draw, seed: int, wanted: Sequence[str]
) -> list[ShownPrompt]:
    """Return one prompt per task, in order; a repeated task gets another draw.

    A task without a scored kernel gets a prompt without exemplars.

    Args:
        lake: Pinned to the snapshot.
        draw: How exemplars are drawn.
        seed: Seed of this step (`step_seed`).
        wanted: Tasks, by id.

    Raises:
        LeakageFound: a task is not in the train split.
    """
    times = Counter(wanted)
    known: dict[str, list[ShownPrompt]] = {}
    if draw.arm != "none":
        known = _render_tasks(lake, draw, seed, set(times), max(times.values()))
    missing = set(times) - set(known)
    if missing:
        known |= _render_tasks(lake, replace(draw, arm="none"), seed, missing, 1)
    foreign = sorted(set(times) - set(known))
    if foreign:
        raise LeakageFound(
            f"task {foreign[0][:12]} is not one to train on ({len(foreign)} such)",
            "Make the list of tasks by `pipelines run rl-prompts`: it has none of the test split.",
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
    lake: store.Lake, draw: Draw, seed: int, tasks: set[str], per_task: int
) -> dict[str, list[ShownPrompt]]:
    """Return the prompts by task; tasks without exemplars are left out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    job = Job(
        lake=lake,
        pipeline="contrastive-batch",
        module=contrastive_batch,
        config=contrastive_batch.Config(
            strategy="bucket" if draw.arm == "shuffled" else draw.arm,
            per_task=per_task,
            device=draw.device,
            **pipelines.copy_exemplar_options(draw),
        ),
        request=Request(purpose=_PURPOSE, seed=seed),
        name="contrastive-batch",
        counter=pipelines.make_counter(None),
    )
    try:
        rows = pipelines.select_rows(job).rows
    except EmptyDataset:
        return {}
    rows = rows.filter(pc.is_in(rows["task_id"], value_set=pa.array(sorted(tasks), pa.string())))
    found: dict[str, list[ShownPrompt]] = {}
    for _, batch in pipelines.fetch_texts(lake, rows, max(rows.num_rows, 1)):
        for row in batch:
            shown = _shuffle_scores(row, seed) if draw.arm == "shuffled" else row
            asked = ShownPrompt(
                task_id=row.task.task_id,
                messages=contrastive_batch.render(shown)["prompt"],
                template_hash=pipelines.template_hash(contrastive_batch.TEMPLATE),
                purpose=_PURPOSE,
                exemplar_kernel_ids=shown.columns["exemplar_kernel_ids"],
                exemplar_scores=shown.columns["exemplar_scores"],
                lake_id=lake.lake_id,
                snapshot_id=lake.snapshot,
            )
            found.setdefault(asked.task_id, []).append(asked)
    return found


def _shuffle_scores(row: Row, seed: int) -> Row:
    """Return a row whose scores are in an order that a hash draws."""
    scores: list[float] = row.columns["exemplar_scores"]
    parts = ("shuffled", str(seed), row.task.task_id, str(row.columns["draw"]))
    order = sorted(range(len(scores)), key=lambda at: store.ids.content_id(*parts, str(at)))
    return replace(row, columns=row.columns | {"exemplar_scores": [scores[at] for at in order]})
