"""Prompts of CUDA-L1: a task with scored kernels of its own, to be compared and then beaten.

Each prompt has four blocks: the task with its reference code, N earlier kernels with their
speedups, the protocol of the answer (analysis, design, code), and requirements and restrictions.
Which kernels are shown is drawn in SQL over measured speedups: by default two out of distinct
score buckets, fast buckets more often. Kernels that are wrong, another function
than the task's, or known cheats (view withheld) are never shown.

CUDA-L1 does not publish its temperature and bucket width: the defaults here are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pipelines
from pipelines.contract.rows import Message, Request, Row, Selection
from pipelines.selection.draws import Strategy, check, draw
from pipelines.selection.rules import asked_tasks, find_task
from pipelines.selection.scores import (
    BASELINE_WORDS,
    Baseline,
    Evidence,
    Scores,
    device_kind,
    scores,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

    import store

DATASET_TYPE = "prompt-only"
TEMPLATE = "contrastive.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of contrastive-batch."""

    strategy: Strategy = "bucket"
    """bucket: softmax over score buckets. island: the same inside one of several islands of
    kernels. random: any kernels. top: the fastest. none: the reference alone."""
    exemplars: int = 2
    """Kernels shown in a prompt (CUDA-L1: 2)."""
    per_task: int | None = None
    """Prompts per task (default: 1, or as many as --limit needs)."""
    evidence: Evidence = "measured"
    """measured: speedups from timings. claimed: published ones stand in, and every row says so."""
    device: str | None = None
    """Device whose speedups are shown (default: the one with the most; with --evidence claimed,
    tasks with too few of them show kernels with the speedup for another GPU, which is named)."""
    baseline: Baseline = "eager"
    """What speedups are relative to."""
    temperature: float = 1.0
    """Temperature of the softmax over buckets, in units of speedup. Our choice: not published."""
    bucket_width: float = 0.25
    """Width of a score bucket, in units of speedup. Our choice: not published."""
    islands: int = 4
    """Islands that strategy island deals the kernels of a task to."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw the exemplars of every prompt.

    Raises:
        EmptyDataset: no task of the purpose, or no speedup of the evidence asked for.
    """
    import pyarrow.compute as pc

    check(config)
    dropped = asked_tasks(lake, request)
    found = _scores(lake, config, request)
    if found is None:
        candidates, device = lake.run("SELECT task_id FROM asked").arrow(), config.device
    else:
        candidates = lake.run("SELECT DISTINCT task_id FROM eligible").arrow()
        asked = lake.run("SELECT count(*) AS tasks FROM asked").rows()[0]["tasks"]
        dropped |= {f"kernel: {why}": count for why, count in found.dropped.items()}
        dropped["task: no kernel to show"] = asked - candidates.num_rows
        device = found.device
    if candidates.num_rows == 0:
        raise pipelines.no_rows(
            "every scored kernel is withheld, wrong, another function or contaminated",
            '`store query "FROM withheld"` lists kernels that no dataset may hold, and why.',
        )
    exemplars = draw(lake, candidates, config, request)
    lake.register("exemplars", exemplars)
    rows = lake.run(
        pipelines.sql("contrastive_batch", "rows"),
        {
            "seed": request.seed,
            "exemplars": config.exemplars,
            "strategy": config.strategy,
            "evidence": config.evidence if found is not None else "none",
            "device": device,
            "baseline": config.baseline,
        },
    ).arrow()
    dropped["row: duplicate"] = pc.count_distinct(exemplars["row_index"]).as_py() - rows.num_rows
    short = pc.sum(rows["reference_shown"]).as_py() or 0
    notes = {"strategy": config.strategy, "evidence": config.evidence, "baseline": config.baseline}
    if device is not None:
        notes["device"] = device
    if short:
        notes["reference shown as 1.00x"] = f"{short} rows, which have fewer exemplars than asked"
    for what, count in _stand_ins(rows, device).items():
        notes[what] = f"{count} exemplars, named as such in the prompts"
    kind = device_kind(lake, device)
    return Selection(
        rows=rows.append_column("_device_kind", _constant(kind, rows.num_rows)),
        dropped={why: count for why, count in dropped.items() if count},
        notes=notes,
    )


def render(row: Row) -> dict[str, list[Message]]:
    """Return the prompt of one row."""
    columns = row.columns
    shown = [
        {
            "score": f"{score:.2f}x" + (f" on {place}" if place != columns["device"] else ""),
            "text": pipelines.files(kernel),
            "implied": implied,
        }
        for kernel, score, place, implied in zip(
            row.kernels,
            columns["exemplar_scores"],
            columns.get("exemplar_devices", ()),
            columns.get("exemplar_implied", ()),
            strict=True,
        )
    ]
    if columns["reference_shown"]:
        text = "The reference itself, as it stands under Task."
        shown.append({"score": "1.00x", "text": text, "implied": False})
    text = pipelines.render(
        TEMPLATE,
        task_block=pipelines.task_block(row.task),
        workload=pipelines.sizes(columns["_axes"]),
        shown=shown,
        other_gpus=any(place != columns["device"] for place in columns.get("exemplar_devices", ())),
        evidence=columns["evidence"],
        device=columns["device"],
        device_kind=columns["_device_kind"],
        baseline_words=BASELINE_WORDS[columns["baseline"]],
    )
    return {"prompt": [{"role": "user", "content": text}]}


def explain(lake: store.Lake, config: Config, request: Request, task: str) -> RenderableType:
    """Draw the buckets of one task, their probabilities and what the first draw takes.

    Raises:
        UnknownName: no such task, or several.
        EmptyDataset: the task has no kernel that may be shown.
    """
    from pipelines.rendering.bucket_chart import buckets

    check(config)
    task_id, name = find_task(lake, task)
    asked_tasks(lake, request)
    found = _scores(lake, config, request)
    if found is not None:
        lake.keep("scored", "FROM scored WHERE task_id = $1", [task_id])
    candidates = lake.run("SELECT DISTINCT task_id FROM eligible").arrow()
    if found is None or candidates.num_rows == 0:
        raise pipelines.no_rows(
            f"{name} ({task_id[:12]}) has no scored kernel for --purpose {request.purpose}",
            '`store query "SELECT * FROM speedups"` lists what was measured.',
        )
    drawn = draw(lake, candidates, config, request)
    table = lake.run(
        pipelines.sql("contrastive_batch", "explain"),
        {
            "bucket_width": config.bucket_width,
            "temperature": config.temperature,
            "exemplars": config.exemplars,
        },
    ).arrow()
    return buckets(
        table.to_pylist(),
        [one for one in drawn.to_pylist() if one["draw"] == 0 and one["kernel_id"] is not None],
        title=f"{name} · {task_id[:12]} · {found.device} · {config.baseline} · "
        f"{config.evidence} · seed {request.seed}",
        softmax=config.strategy == "bucket",
    )


def _scores(lake: store.Lake, config: Config, request: Request) -> Scores | None:
    if config.strategy == "none":
        lake.define("eligible", pipelines.sql("contrastive_batch", "nothing_scored"))
        return None
    return scores(
        lake,
        request,
        evidence=config.evidence,
        device=config.device,
        baseline=config.baseline,
        shown=config.exemplars,
    )


def _stand_ins(rows: pa.Table, device: str | None) -> dict[str, int]:
    """Count exemplars whose score no source states for the device; what none has is left out."""
    shown = rows.select(["exemplar_devices", "exemplar_implied"]).to_pylist()
    counts = {
        "speedups for other GPUs": sum(
            place != device for row in shown for place in row["exemplar_devices"]
        ),
        "speedups implied by two": sum(sum(row["exemplar_implied"]) for row in shown),
    }
    return {what: count for what, count in counts.items() if count}


def _constant(value: str, rows: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(value, rows)
