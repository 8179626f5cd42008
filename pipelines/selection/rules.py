"""Rules that every dataset follows, whatever the pipeline's SQL selects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import store
from pipelines.contract import Purpose, Request, Selection, Shapes
from pipelines.selection.queries import Relation, keep, query, sql
from store.errors import EmptyDataset, LeakageFound


@dataclass(frozen=True, kw_only=True)
class Exclusions:
    """Tasks and kernels that no row of a request may hold."""

    held_out: Relation
    """The rows of the view test_tasks; empty unless the request is for training."""
    test_kernels: Relation
    """kernel_id of attempts at test tasks and copies of them; empty unless the request is for
    training."""
    unfit: Relation
    """kernel_id and task_id of kernels that are another function than their task's module, or wrong
    at another shape of it, with the reason; as far as the request leaves them out."""
    excluded: Relation
    """kernel_id and reason of kernels that no row may hold: those of the view withheld, those of
    `test_kernels`, and those that the newest audit has not read."""
    excluded_claims: Relation
    """Like `excluded`, for kernels that have only published figures: those with an open
    finding of a confidence of 0.5 or more as well, unless the request includes them."""


# A lake is pinned, so its answers do not change.
_known: WeakKeyDictionary[store.Lake, dict[tuple[Purpose, bool, bool, Shapes], Exclusions]] = (
    WeakKeyDictionary()
)


def find_exclusions(lake: store.Lake, request: Request) -> Exclusions:
    """Return what no row of the request may contain; queries a lake once per rule."""
    of_lake = _known.setdefault(lake, {})
    rules = (
        request.purpose,
        request.include_nonequivalent,
        request.include_doubted,
        request.shapes,
    )
    if rules not in of_lake:
        held_out = keep(lake, sql("shared", "held_out"), {"purpose": request.purpose})
        test_kernels = keep(lake, sql("shared", "test_kernels"), held_out=held_out)
        excluded = keep(lake, sql("shared", "excluded"), test_kernels=test_kernels)
        of_lake[rules] = Exclusions(
            held_out=held_out,
            test_kernels=test_kernels,
            unfit=keep(
                lake,
                sql("shared", "unfit"),
                {"another_function": request.include_nonequivalent, "shapes": request.shapes},
            ),
            excluded=excluded,
            excluded_claims=keep(
                lake,
                sql("shared", "excluded_claims"),
                {"doubted": request.include_doubted},
                excluded=excluded,
            ),
        )
    return of_lake[rules]


def refuse_empty(message: str, hint: str, dropped: Mapping[str, int]) -> EmptyDataset:
    """Return the error of a selection without a row, which says how many kernels were left out.

    dropped: Reason to number of kernels.
    """
    if dropped:
        reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
        message += f" (kernels left out: {reasons})"
    if dropped.get("not audited"):
        hint = "`evaluators audit` reads the kernels that no audit of this lake has read."
    return EmptyDataset(f"no row is left: {message}", hint)


def apply_rules(lake: store.Lake, selection: Selection, request: Request) -> Selection:
    """Leave out the rows that no dataset may contain, and count them.

    A task of the test split, or a copy of one, in a training set is an error of the pipeline. Left
    out are rows with a kernel that is quarantined, surely suspected, rejected or a copy of such a
    one (view withheld), that no audit has read, or that is another function than the task's, and
    for training also rows with a kernel of a test task or a near copy of one.
    A note counts tasks that this lake has not audited, whatever a pulled lake says.

    Raises LeakageFound: a training row asks for a test task or a copy of one; names the tasks.
    """
    import pyarrow as pa

    picked = selection.rows.select(["task_id", "kernel_ids"]).append_column(
        "row_index", pa.array(range(selection.rows.num_rows), pa.int64())
    )
    exclusions = find_exclusions(lake, request)
    leaks = query(
        lake, sql("shared", "leaks"), picked=picked, held_out=exclusions.held_out
    ).to_pylist()
    if leaks:
        named = ", ".join(f"{leak['name']} ({leak['task_id'][:12]})" for leak in leaks[:3])
        more = f" and {len(leaks) - 3} more" if len(leaks) > 3 else ""
        raise LeakageFound(
            f"{len(leaks)} tasks of the test split would reach training rows: {named}{more}",
            "Join `asked` in the pipeline's SQL, or make prompts for evaluation with "
            "--purpose eval.",
        )
    [unaudited] = query(lake, sql("shared", "unaudited_tasks"), picked=picked).to_pylist()
    if unaudited["tasks"]:
        note = {"unaudited": f"{unaudited['tasks']} tasks (`evaluators tasks`)"}
        selection = replace(selection, notes=selection.notes | note)
    tainted = query(
        lake,
        sql("shared", "tainted"),
        picked=picked,
        test_kernels=exclusions.test_kernels,
        unfit=exclusions.unfit,
        excluded=exclusions.excluded,
    ).to_pylist()
    if not tainted:
        return selection
    bad = {row["row_index"] for row in tainted}
    counts = Counter(row["reason"] for row in tainted)
    kept = pa.array([index not in bad for index in range(selection.rows.num_rows)])
    return replace(
        selection,
        rows=selection.rows.filter(kept),
        dropped=selection.dropped | {f"row: {reason}": counts[reason] for reason in sorted(counts)},
    )
