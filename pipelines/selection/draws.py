"""Draws the exemplars of prompts; a draw is a hash of seed, task and number of the draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import store
from pipelines.contract import DrawOptions, Request
from pipelines.selection.queries import Relation, Rows, keep, query, sql
from store.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

_NARROWEST = 1e-9
"""Buckets are numbered from 0. Narrower ones could have numbers that are too large for SQL."""
MOST_ROWS = 2**62


def place(
    lake: store.Lake, eligible: Rows, options: DrawOptions, *, reference: bool = True
) -> Relation:
    """Return eligible kernels with their buckets, and which of them prompts may show.

    The kernels of one prompt differ: the interval of the ratio of any two of their scores excludes
    1 (placed.sql). Tasks without a kernel that may be shown get no prompt.

    reference: Whether one kernel beside the reference is a contrast as well, if it differs from
        it.

    Raises DatasetError: an option is out of its range.
    """
    check_options(options)
    return keep(
        lake,
        sql("contrastive_batch", "placed"),
        {
            "exemplars": options.exemplars,
            # Each score is a bucket of its own.
            "bucket_width": _NARROWEST if options.strategy == "top" else options.bucket_width,
            "islands": options.islands if options.strategy == "island" else 1,
            "reference": reference,
        },
        eligible=eligible,
    )


def draw(
    lake: store.Lake, candidates: pa.Table, placed: Rows, options: DrawOptions, request: Request
) -> pa.Table:
    """Return one row per exemplar: row_index, task_id, draw, kernel_id, score, beside_reference.

    Args:
        candidates: task_id of every task that gets prompts.
        placed: Kernels with their buckets (`place`).
    """
    import pyarrow as pa

    per_task = options.per_task or 1
    if options.per_task is None and request.limit is not None and candidates.num_rows:
        per_task = max(1, -(-request.limit // candidates.num_rows))
    draws = query(
        lake,
        sql("contrastive_batch", "draws"),
        {
            "seed": request.seed,
            "per_task": per_task,
            "limit": MOST_ROWS if request.limit is None else request.limit,
        },
        candidates=candidates.select(["task_id"]),
    )
    if options.strategy == "none":
        return query(lake, sql("contrastive_batch", "none"), draws=draws)
    if options.strategy == "top":
        values = {"exemplars": options.exemplars}
        return query(lake, sql("contrastive_batch", "top"), values, draws=draws, placed=placed)
    keyed = keep(
        lake,
        sql("contrastive_batch", "buckets"),
        {
            "seed": request.seed,
            "temperature": options.temperature,
            "uniform": options.strategy == "random",
        },
        draws=draws,
        placed=placed,
    )
    # One kernel of each draw at a time: which others differ depends on those that are taken.
    taken = pa.table(
        {
            "row_index": pa.array([], pa.int64()),
            "bucket": pa.array([], pa.int64()),
            "low": pa.array([], pa.float64()),
            "reach": pa.array([], pa.float64()),
        }
    )
    picks: list[pa.Table] = []
    for number in range(options.exemplars):
        picked = query(
            lake,
            sql("contrastive_batch", "pick"),
            {"seed": request.seed, "several": number > 1},
            keyed=keyed,
            placed=placed,
            taken=taken,
        )
        picks.append(picked.drop_columns(["bucket", "low", "reach"]))
        if picked.num_rows == 0:
            break
        taken = pa.concat_tables([taken, picked.select(taken.column_names)])
    return pa.concat_tables(picks)


def check_options(options: DrawOptions) -> None:
    """Raise DatasetError, naming the option, if a constant of the draw is out of its range."""
    for name in ("exemplars", "islands", "per_task"):
        if (value := getattr(options, name)) is not None and value < 1:
            option = name.replace("_", "-")
            raise DatasetError(f"--{option} {value} is too few", "Give 1 or more.")
    for name in ("temperature", "bucket_width"):
        if not (value := getattr(options, name)) > 0:
            option = name.replace("_", "-")
            raise DatasetError(f"--{option} {value} is not above 0", "Give a positive number.")
    if options.bucket_width < _NARROWEST:
        raise DatasetError(
            f"--bucket-width {options.bucket_width} is too narrow", f"Give {_NARROWEST:g} or more."
        )
