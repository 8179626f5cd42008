"""Prompts of CUDA-L1: a task with some of its scored kernels, which the answer compares and beats.

Each prompt has four blocks: the task with its reference code, N earlier kernels with their
speedups, the protocol of the answer (analysis, design, code), and requirements and restrictions.
SQL draws the kernels by their measured speedups: by default two from different score buckets, with
a preference for fast buckets. Prompts never show kernels that are wrong, compute a different
function than the task, or are known cheats (view withheld).

CUDA-L1 draws buckets with P(B) ∝ exp((mean of B - mean of means) / τ) and publishes neither τ nor
the bucket width: the defaults are our choice. Our τ is --temperature times the standard deviation
of the means, as the speedups of some tasks differ by tenths and those of others by tens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import store
from pipelines.contract import DrawOptions, Evidence, Message, Request, Row, Selection
from pipelines.rendering.messages import render_contrast
from pipelines.selection.queries import Relation, query, sql
from pipelines.selection.rules import refuse_empty
from pipelines.selection.scores import (
    Scores,
    draw,
    find_device_kind,
    find_scores,
    name_clock,
    place,
)
from pipelines.selection.tasks import select_tasks
from store.commandline.escape import escape_terminal
from store.dossier.pages import find_task
from store.errors import EmptyDataset

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import RenderableType

DATASET_TYPE = "prompt-only"
TEMPLATE = "contrastive.j2"
_BAR_WIDTH = 14
_LINE_WIDTH = 44
_MOST_LINES = 30


@dataclass(frozen=True, kw_only=True)
class Config(DrawOptions):
    """Options of contrastive-batch."""

    evidence: Evidence = "measured"
    """measured: use speedups from timings. claimed: use published speedups, and record that in
    every row."""
    device: str | None = None
    """Device whose speedups are shown (default: the one that this lake measured last, else the one
    with the most speedups). With --evidence claimed and without this option, a task with too few
    speedups for it shows speedups for another GPU, which the prompt names."""
    device_kind: Literal["cpu", "cuda"] | None = None
    """Hardware to ask kernels for (default: that of the device whose speedups are shown)."""
    baselines: bool = False
    """With --evidence claimed: also show the released codes of baselines, such as a CUDA graph of
    the reference. Their speedup over eager is the quotient of two published ones."""
    namespace: str | None = None
    """Show kernels that were attempted in this namespace, and those without one (default: all)."""


def select(lake: store.Lake, config: Config, request: Request) -> Selection:
    """Draw the exemplars of every prompt.

    Raises EmptyDataset: no task of the purpose, or no speedup of the evidence asked for.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    tasks = select_tasks(lake, request)
    scores = _find_scores(lake, config, request, tasks.rows)
    dropped = dict(tasks.dropped)
    if scores is None:
        eligible, device = _make_empty_scores(), config.device
        notes = {} if device is None else {"device": device}
    else:
        eligible, device, notes = scores.eligible, scores.device, scores.notes
        dropped |= {f"kernel: {why}": count for why, count in scores.dropped.items()}
    placed = place(lake, eligible, config)
    candidates = tasks.rows
    if scores is not None:
        scored = query(lake, "SELECT DISTINCT task_id FROM eligible", eligible=eligible)
        candidates = query(lake, "SELECT DISTINCT task_id FROM placed WHERE shown", placed=placed)
        dropped["task: no kernel to show"] = tasks.rows.num_rows - scored.num_rows
        dropped["task: no two kernels that differ"] = scored.num_rows - candidates.num_rows
        if scored.num_rows == 0:
            raise refuse_empty(
                "no scored kernel may be shown",
                '`store query "FROM withheld"` lists kernels that no dataset may hold, and why.',
                scores.dropped,
            )
        if candidates.num_rows == 0:
            raise refuse_empty(
                f"no task has two kernels on {device} whose scores differ, nor one that differs "
                "from the reference",
                "`pipelines run contrastive-batch --explain TASK` draws the intervals of the "
                "scores. Measure more kernels: `evaluators run`.",
                scores.dropped,
            )
    exemplars = draw(lake, candidates, placed, config, request)
    rows = query(
        lake,
        sql("contrastive_batch", "rows"),
        {
            "seed": request.seed,
            "exemplars": config.exemplars,
            "strategy": config.strategy,
            "evidence": "none" if scores is None else config.evidence,
            "device": device,
            "baseline": config.baseline,
        },
        exemplars=exemplars,
        eligible=eligible,
    )
    dropped["row: duplicate"] = pc.count_distinct(exemplars["row_index"]).as_py() - rows.num_rows
    notes = {
        "strategy": config.strategy,
        "evidence": config.evidence,
        "baseline": config.baseline,
    } | notes
    # Exemplars whose score is implied for the device, and not published.
    if short := pc.sum(rows["reference_shown"]).as_py():
        notes["reference shown as 1.00x"] = f"{short} rows, which have fewer exemplars than asked"
    shown = rows.select(["exemplar_devices", "exemplar_implied"]).to_pylist()
    others = sum(place != device for row in shown for place in row["exemplar_devices"])
    implied = sum(sum(row["exemplar_implied"]) for row in shown)
    for what, count in (("for other GPUs", others), ("implied by two", implied)):
        if count:
            notes[f"speedups {what}"] = f"{count} exemplars, named as such in the prompts"
    kind = pa.repeat(config.device_kind or find_device_kind(lake, device), rows.num_rows)
    return Selection(
        rows=name_clock(rows.append_column("_device_kind", kind), config.clock),
        dropped={why: count for why, count in dropped.items() if count},
        notes=notes,
    )


def render(row: Row) -> dict[str, list[Message]]:
    """Return the prompt of one row."""
    return {"prompt": render_contrast(row)}


def explain(lake: store.Lake, config: Config, request: Request, task: str) -> RenderableType:
    """Draw charts of one task's buckets, and of the intervals of its kernels' scores.

    Both mark the kernels of the first draw.

    Raises:
        UnknownName: no such task, or several.
        EmptyDataset: the task has no kernel that may be shown.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    found = find_task(lake, task)
    task_id, name = found["task_id"], found["name"]
    request = replace(request, tasks=(task_id,))
    try:
        scores = _find_scores(lake, config, request, select_tasks(lake, request).rows)
    except EmptyDataset as error:
        raise EmptyDataset(f"{name} ({task_id[:12]}): {error.message}", error.hint) from error
    eligible = _make_empty_scores() if scores is None else scores.eligible
    intervals = query(lake, sql("contrastive_batch", "intervals"), eligible=eligible).to_pylist()
    if scores is None or not intervals:
        place_words = "" if scores is None else f" on {scores.device}"
        raise EmptyDataset(
            f"no row is left: {name} ({task_id[:12]}) has no scored kernel for --purpose "
            f"{request.purpose}{place_words}",
            f"`store show {task_id[:12]}` lists what was measured; choose a device by --device.",
        )
    placed = place(lake, eligible, config)
    candidates = query(lake, "SELECT DISTINCT task_id FROM placed WHERE shown", placed=placed)
    drawn = draw(lake, candidates, placed, config, request).to_pylist()
    exemplars = {row["kernel_id"]: row["score"] for row in drawn if row["draw"] == 0}
    # One line per bucket, fastest first, with a bar and the exemplars of the first draw.
    buckets = query(
        lake,
        sql("contrastive_batch", "explain"),
        {
            "bucket_width": config.bucket_width,
            "temperature": config.temperature,
            "uniform": config.strategy == "random",
        },
        placed=placed,
    ).to_pylist()
    softmax = config.strategy in ("bucket", "random")
    title = (
        f"{name} · {task_id[:12]} · {scores.device} · {config.baseline} · {config.evidence} · "
        f"seed {request.seed}"
    )
    chart = Table(
        box=box.SIMPLE_HEAD,
        title=Text(escape_terminal(title)),
        title_justify="left",
        pad_edge=False,
    )
    for header in ("bucket", "kernels", "mean", "P(first)" if softmax else "share"):
        chart.add_column(header, justify="right")
    chart.add_column("", min_width=_BAR_WIDTH)
    chart.add_column("drawn")
    total = sum(row["kernels"] for row in buckets)
    shares = [(row["probability"] or 0.0) if softmax else row["kernels"] / total for row in buckets]
    for row, share in reversed(list(zip(buckets, shares, strict=True))):
        marks = ", ".join(
            f"{kernel_id[:8]} {score:.2f}x"
            for kernel_id, score in exemplars.items()
            if kernel_id in row["kernel_ids"]
        )
        chart.add_row(
            f"{row['score_from']:.2f}x"
            + (f" to {row['score_to']:.2f}x" if row["score_to"] > row["score_from"] else ""),
            str(row["kernels"]),
            f"{row['mean_score']:.2f}x",
            f"{share:.3f}",
            "█" * max(1, round(_BAR_WIDTH * share / max(shares))) if share > 0 else "",
            Text(marks),
        )
    lines = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    lines.add_column("kernel")
    lines.add_column("score", justify="right")
    lines.add_column("interval", justify="right")
    lines.add_column("│ marks the reference, 1.00x", min_width=_LINE_WIDTH)
    lines.add_column("drawn")
    lowest = min(1.0, *(row["score_low"] or row["score"] for row in intervals))
    highest = max(1.0, *(row["score_high"] or row["score"] for row in intervals))
    most = intervals[:_MOST_LINES] if len(intervals) > _MOST_LINES else intervals
    for row in most:
        low, high = row["score_low"], row["score_high"]
        lines.add_row(
            row["kernel_id"][:8],
            f"{row['score']:.2f}x",
            "none" if low is None else f"{low:.2f} to {high:.2f}",
            _draw_interval(
                low or row["score"], row["score"], high or row["score"], lowest, highest
            ),
            "drawn" if row["kernel_id"] in exemplars else "",
        )
    words = scores.notes["scores"]
    if not candidates.num_rows:
        words = f"No two kernels differ, so that the task gets no prompt. Scores {words}."
    elif len(most) < len(intervals):
        words = f"The {len(most)} fastest of {len(intervals)} kernels. Scores {words}."
    else:
        words = f"Scores {words}."
    return Group(chart, lines, Text(words))


def _draw_interval(low: float, score: float, high: float, lowest: float, highest: float) -> str:
    """Return a line from low to high with a point at the score, on a logarithmic axis."""
    span = math.log(highest / lowest) or 1.0

    def find_column(value: float) -> int:
        return round((_LINE_WIDTH - 1) * math.log(max(value, lowest) / lowest) / span)

    cells = [" "] * _LINE_WIDTH
    cells[find_column(1.0)] = "│"
    first, last = find_column(low), find_column(high)
    cells[first : last + 1] = "─" * (last - first + 1)
    cells[find_column(score)] = "●"
    return "".join(cells)


def _find_scores(
    lake: store.Lake, config: Config, request: Request, tasks: pa.Table
) -> Scores | None:
    if config.strategy == "none":
        return None
    return find_scores(
        lake,
        request,
        tasks,
        evidence=config.evidence,
        device=config.device,
        baseline=config.baseline,
        clock=config.clock,
        shown=config.exemplars,
        baselines=config.baselines,
        namespace=config.namespace,
    )


def _make_empty_scores() -> Relation:
    """Return an empty table with the columns of scored kernels."""
    return Relation(sql=sql("contrastive_batch", "nothing_scored"))
