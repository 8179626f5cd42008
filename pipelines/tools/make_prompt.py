"""Make a contrastive prompt for one task."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pipelines
import store
from pipelines.contract import Baseline, Evidence, Purpose, Request, Strategy
from store.dossier.pages import find_task
from store.errors import DatasetError, EmptyDataset
from store.ids import messages_json
from store.mcp.lake_tools import IssuedPrompt, LakeTools, Reply

READS_ONLY = True
_PIPELINE = "contrastive-batch"


async def run(
    lake_tools: LakeTools,
    task: str,
    exemplars: int = 2,
    strategy: Strategy = "bucket",
    device: str | None = None,
    baseline: Baseline = "eager",
    evidence: Evidence = "measured",
    purpose: Purpose = "train",
    seed: int = 0,
    at: str | None = None,
) -> Reply:
    """Make the prompt of pipeline contrastive-batch for a task: scored kernels to compare and beat.

    The same arguments at the same snapshot give the same prompt. Name its prompt_id when you submit
    a kernel that you wrote with it: the kernel then has the exemplars in its lineage.

    Args:
        task: Name such as level1/9, L1-9 or kernelbench/level1/9, or the start of the task's id.
        exemplars: Number of kernels to show.
        strategy: How the kernels are drawn: bucket, island, random, top, or none.
        device: Device whose speedups are shown (default: the one that was measured last).
        baseline: Baseline of the speedups.
        evidence: measured, or claimed for published speedups.
        purpose: train for tasks of the train split, eval for tasks of the test split.
        seed: Seed of the draw.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
    """
    snapshot = await lake_tools.resolve(at)
    config: dict[str, Any] = {
        "exemplars": exemplars,
        "strategy": strategy,
        "device": device,
        "baseline": baseline,
        "evidence": evidence,
    }
    request = Request(purpose=purpose, seed=seed)
    prompt, notes = await lake_tools.read(snapshot, lambda lake: _make(lake, task, config, request))
    if len(prompt.messages) > lake_tools.limits.max_chars:
        raise DatasetError(
            f"the prompt has {len(prompt.messages)} characters, and an answer may have "
            f"{lake_tools.limits.max_chars}",
            "Ask for fewer exemplars, or restart the server with a higher --max-chars.",
        )
    lake_tools.remember(prompt)
    scores = zip(prompt.exemplar_kernel_ids, prompt.exemplar_scores, strict=True)
    data = {
        "prompt_id": prompt.prompt_id,
        "task_id": prompt.task_id,
        "purpose": prompt.purpose,
        "exemplars": [{"kernel_id": kernel, "speedup": score} for kernel, score in scores],
        "notes": notes,
        "messages": json.loads(prompt.messages),
    }
    return Reply(snapshot=snapshot, data=data, whole=("messages",))


def _make(
    lake: store.Lake, wanted: str, config: dict[str, Any], request: Request
) -> tuple[IssuedPrompt, dict[str, str]]:
    """Return the first prompt that the pipeline makes for the task, and its notes.

    Raises UnknownName for the task, and EmptyDataset if the pipeline has no prompt for it.
    """
    from pipelines import contrastive_batch
    from pipelines.datasets.job import Dataset, Job

    task = find_task(lake, wanted)
    task_id, name = task["task_id"], task["name"]
    job = Job(
        lake=lake,
        pipeline=_PIPELINE,
        module=contrastive_batch,
        config=contrastive_batch.Config(**config),
        request=replace(request, tasks=(task_id,)),
        name=_PIPELINE,
        counter=pipelines.make_counter(None),
    )
    try:
        selection = pipelines.select_rows(job)
    except EmptyDataset as error:
        other = "eval" if request.purpose == "train" else "train"
        raise EmptyDataset(
            f"no prompt for {name} with purpose {job.request.purpose}: {error.message}",
            f"Its split may be that of purpose {other}, or no kernel of it has a measured speedup: "
            "strategy none shows the reference alone, evidence claimed shows published speedups.",
        ) from error
    selection = replace(selection, rows=selection.rows.slice(0, 1))
    [table] = pipelines.render_rows(job, Dataset(job=job), selection)
    [row] = table.to_pylist()
    prompt = IssuedPrompt(
        prompt_id=row["prompt_id"],
        messages=messages_json(row["prompt"]),
        template_hash=row["template_hash"],
        task_id=task_id,
        purpose=job.request.purpose,
        exemplar_kernel_ids=row["exemplar_kernel_ids"],
        exemplar_scores=row["exemplar_scores"],
        lake_id=lake.lake_id,
        snapshot_id=lake.snapshot,
    )
    return prompt, dict(selection.notes)
