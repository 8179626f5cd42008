"""Prompts of one training step or search round: tasks with exemplars from a pinned snapshot.

Draw and text equal those of the pipeline contrastive-batch. A prompt is a pure function of lake,
snapshot, seed and task, so a step can be rendered again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import pipelines
import store
from pipelines import ExemplarOptions, Job, Purpose, Request, Strategy
from store import read_sql
from store.commandline.members import find_member
from store.errors import EmptyDataset, FlywheelError, LeakageFound
from trainers.rollouts.attempts import ShownPrompt


@dataclass(frozen=True, kw_only=True)
class Draw(ExemplarOptions):
    """How exemplars are drawn."""

    arm: Strategy
    """Strategy of contrastive-batch."""
    device: str
    """Name of the device whose speedups are shown."""
    namespace: str | None = None
    """Namespace of the attempts; prompts show its kernels and those without one (None: all)."""
    purpose: Purpose = "train"
    """Split of the tasks: train, or eval for those of the test split."""
    pipeline: str = "contrastive-batch"
    """Pipeline that makes the prompts."""


def derive_step_seed(seed: int, step: int, draw: int = 0) -> int:
    """Return the seed of one step's draws; the draws themselves hash it with each task."""
    return int(store.ids.content_id("step", str(seed), str(step), str(draw))[:15], 16)


def check_pipeline(name: str) -> None:
    """Raise FlywheelError if a pipeline shows kernels but cannot keep those of other arms out."""
    module = find_member("pipelines", name).load()
    options = {field.name for field in fields(module.Config)}
    if "exemplars" in options and not {"strategy", "namespace"} <= options:
        raise FlywheelError(
            f"{name} cannot make the prompts of a search: it shows kernels of all arms",
            "Use contrastive-batch, or rl-prompts for prompts without kernels.",
        )


def shows_exemplars(draw: Draw) -> bool:
    """Return whether the pipeline of a draw shows kernels; rl-prompts shows none."""
    module = find_member("pipelines", draw.pipeline).load()
    return "strategy" in {field.name for field in fields(module.Config)}


def render_prompts(
    lake: store.Lake, draw: Draw, seed: int, wanted: Sequence[str]
) -> list[ShownPrompt]:
    """Return one prompt per task, in order; a repeated task gets another draw.

    A task without a scored kernel gets a prompt without exemplars.

    Args:
        lake: Pinned to the snapshot.
        draw: How exemplars are drawn.
        seed: Seed of this step (`derive_step_seed`).
        wanted: Tasks, by id.

    Raises:
        LeakageFound: a task is not of the draw's purpose, or is weak.
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
        weak = lake.run(
            "SELECT task_id FROM weak_tasks WHERE task_id IN (SELECT unnest($1))", [foreign]
        ).rows()
        if weak:
            raise LeakageFound(
                f"task {weak[0]['task_id'][:12]} is weak, so trivial answers pass it "
                f"({len(weak)} such)",
                "Make the list again by `pipelines run rl-prompts`, without --include-weak.",
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
    lake: store.Lake, draw: Draw, seed: int, tasks: set[str], per_task: int
) -> dict[str, list[ShownPrompt]]:
    """Return the prompts by task; tasks without exemplars are left out."""
    module = find_member("pipelines", draw.pipeline).load()
    options = {
        "strategy": draw.arm,
        "per_task": per_task,
        "device": draw.device,
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
