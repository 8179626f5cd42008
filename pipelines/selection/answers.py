"""Correct kernels as answers to one-shot questions, for the pipelines that teach by example."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import store
from pipelines.contract import (
    DrawOptions,
    Evidence,
    Improvements,
    Request,
    Selection,
    copy_exemplar_options,
)
from pipelines.selection.queries import keep, query, sql
from pipelines.selection.rules import find_exclusions, refuse_empty
from pipelines.selection.scores import draw, find_device_kind, find_scores, name_clock, place
from pipelines.selection.tasks import select_tasks
from store.errors import DatasetError, EmptyDataset

if TYPE_CHECKING:
    import pyarrow as pa


def select_answers(
    lake: store.Lake,
    request: Request,
    *,
    evidence: Evidence,
    per_policy: int,
    policy: str | None = None,
    round: int | None = None,
    with_words: bool = False,
) -> Selection:
    """Return one row per kernel to learn from: task_id, kernel_ids, kernel_id, policy_id.

    Args:
        evidence: Whether our verdicts or published speedups say that a kernel is correct.
        per_policy: Most kernels of one task and author.
        policy: Id or name of the one author whose kernels are wanted.
        round: Round of the authors whose kernels are wanted.
        with_words: Take only kernels whose author left an analysis and a design; the rows carry
            these as `_words`.

    Raises:
        EmptyDataset: no correct kernel is left.
        DatasetError: `per_policy` is below 1.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if per_policy < 1:
        raise DatasetError(f"--per-author {per_policy} is too few", "Give 1 or more.")
    tasks = select_tasks(lake, request)
    exclusions = find_exclusions(lake, request)
    successes = query(
        lake,
        sql("shared", f"successes_{evidence}"),
        asked=tasks.rows,
        unfit=exclusions.unfit,
        excluded=exclusions.excluded if evidence == "measured" else exclusions.excluded_claims,
    )
    reasons = _count_reasons(successes["dropped"])
    rows = query(
        lake,
        sql("shared", "answers"),
        {
            "seed": request.seed,
            "per_policy": per_policy,
            "policy": policy,
            "round": round,
            "said": with_words,
        },
        successes=successes.filter(pc.is_null(successes["dropped"])).select(
            ["task_id", "kernel_id", "device_kind"]
        ),
    )
    reasons |= _count_reasons(rows["_dropped"])
    rows = rows.filter(pc.is_null(rows["_dropped"])).drop_columns("_dropped")
    if rows.num_rows == 0:
        of = f" of author {policy}" if policy else ""
        of += f" of round {round}" if round is not None else ""
        of += " with an analysis and a design" if with_words else ""
        hint = "Judge kernels first: `evaluators run`."
        claims = "SELECT 1 FROM claims WHERE metric = 'speedup' AND kernel_id IS NOT NULL LIMIT 1"
        if "no analysis and design of its own" in reasons:
            hint = "--form code takes kernels without an analysis and a design."
        elif evidence == "claimed":
            hint = "Import published kernels first: `store import --help`."
        elif lake.run(claims).one():
            hint = (
                "The lake holds published kernels: --evidence claimed takes them as correct and "
                f"marks every row. {hint}"
            )
        raise refuse_empty(f"no correct kernel{of} at snapshot {lake.snapshot}", hint, reasons)
    dropped = tasks.dropped | {f"kernel: {reason}": count for reason, count in reasons.items()}
    rows = rows.append_column("evidence", pa.repeat(evidence, rows.num_rows))
    return Selection(rows=rows, dropped=dropped, notes={"evidence": evidence})


def _count_reasons(reasons: pa.ChunkedArray) -> dict[str, int]:
    counts = Counter(reasons.drop_null().to_pylist())
    return {str(reason): count for reason, count in sorted(counts.items())}


# Improvements from measured history: slower kernels to show, and a faster one as the answer.


def select_improvements(lake: store.Lake, request: Request, options: Improvements) -> Selection:
    """Return one row per improvement: its exemplars, then the faster kernel, in `kernel_ids`.

    Raises:
        EmptyDataset: no kernel is faster than enough others by the margin.
        DatasetError: an option is out of its range.
    """
    import pyarrow as pa

    if not options.margin >= 1:
        raise DatasetError(f"--margin {options.margin} is below 1", "Give a ratio such as 1.1.")
    if options.per_task < 1:
        raise DatasetError(f"--per-task {options.per_task} is too few", "Give 1 or more.")
    drawing = DrawOptions(**copy_exemplar_options(options), strategy=options.strategy)
    tasks = select_tasks(lake, request)
    scores = find_scores(
        lake,
        request,
        tasks.rows,
        evidence="measured",
        device=options.device,
        baseline=options.baseline,
        clock=options.clock,
    )
    shared = {"seed": request.seed, "exemplars": options.exemplars}
    winners = query(
        lake,
        sql("shared", "improvement_winners"),
        {
            **shared,
            "margin": options.margin,
            "per_task": options.per_task,
            "policy": options.policy,
            "round": options.round,
        },
        eligible=scores.eligible,
    )
    if winners.num_rows == 0:
        of = f" of author {options.policy}" if options.policy else ""
        of += f" of round {options.round}" if options.round is not None else ""
        other = ", choose other attempts" if of else ""
        raise refuse_empty(
            f"no kernel{of} on {scores.device} is {options.margin} times faster than "
            f"{options.exemplars} others of its task",
            f"Lower --margin or --exemplars{other}, or measure more kernels.",
            scores.dropped,
        )
    losers = keep(
        lake,
        sql("shared", "improvement_losers"),
        {"margin": options.margin},
        winners=winners,
        eligible=scores.eligible,
    )
    placed = place(lake, losers, drawing, reference=False)
    pairs = winners.select(["pair_id"]).rename_columns(["task_id"])
    exemplars = draw(lake, pairs, placed, drawing, Request(seed=request.seed))
    rows = query(
        lake,
        sql("shared", "improvement_rows"),
        {**shared, "device": scores.device, "baseline": options.baseline},
        winners=winners,
        exemplars=exemplars,
        eligible=scores.eligible,
    )
    dropped = tasks.dropped | {f"kernel: {why}": n for why, n in scores.dropped.items()}
    short = len(winners["task_id"].unique()) - len(rows["task_id"].unique())
    kind = pa.repeat(find_device_kind(lake, scores.device), rows.num_rows)
    return Selection(
        rows=name_clock(rows.append_column("_device_kind", kind), options.clock),
        dropped=dropped | ({"task: too few kernels that differ": short} if short else {}),
        notes={
            **scores.notes,
            "baseline": options.baseline,
            "evidence": "measured",
            "margin": f"{options.margin} between interval bounds",
            "strategy": options.strategy,
        },
    )


def mix_improvements(
    lake: store.Lake, request: Request, singles: Selection, share: float, options: Improvements
) -> Selection:
    """Return a selection with all improvements behind the other rows, and the share to choose.

    The share of the dataset depends on which rows are left out, so it is chosen after that.

    Raises DatasetError: the share is not from 0 to below 1.
    """
    import pyarrow as pa

    if not 0 <= share < 1:
        raise DatasetError(
            f"--improvement-share {share} is not a share", "Give a number from 0 to below 1."
        )
    if not share:
        return singles
    try:
        pairs = select_improvements(lake, request, options).rows
    except EmptyDataset:
        return replace(singles, improvement_share=share)
    merged = pa.concat_tables([singles.rows, pairs], promote_options="permissive")
    return replace(singles, rows=merged, improvement_share=share)
