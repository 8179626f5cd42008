"""Draws the exemplars of prompts; a draw is a hash of seed, task and number of the draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.contract import DrawOptions, Request
from pipelines.selection.queries import Rows, query, sql
from store.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

    import store

_NARROWEST = 1e-9
"""Buckets are numbered from 0. Narrower ones could have numbers that are too large for SQL."""
MOST_ROWS = 2**62


def draw(
    lake: store.Lake, candidates: pa.Table, eligible: Rows, options: DrawOptions, request: Request
) -> pa.Table:
    """Return one row per exemplar: row_index, task_id, draw, kernel_id, score.

    Args:
        lake: Where the SQL runs.
        candidates: task_id of every task that gets prompts.
        eligible: task_id, kernel_id and score of every kernel that may be shown.
        options: Strategy and its constants.
        request: Seed and number of rows.

    Raises:
        DatasetError: an option is out of its range.
    """
    check_options(options)
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
    values: dict[str, dict[str, object]] = {
        "bucket": {
            "seed": request.seed,
            "exemplars": options.exemplars,
            "bucket_width": options.bucket_width,
            "temperature": options.temperature,
            "islands": options.islands if options.strategy == "island" else 1,
        },
        "random": {"seed": request.seed, "exemplars": options.exemplars},
        "top": {"exemplars": options.exemplars},
        "none": {},
    }
    name = "bucket" if options.strategy in ("island", "shuffled") else options.strategy
    return query(lake, sql("contrastive_batch", name), values[name], draws=draws, eligible=eligible)


def check_options(options: DrawOptions) -> None:
    """Raise DatasetError, naming the option, if a constant of the draw is out of its range."""
    for option, value, least in (
        ("exemplars", options.exemplars, 1),
        ("islands", options.islands, 1),
        ("per-task", 1 if options.per_task is None else options.per_task, 1),
    ):
        if value < least:
            raise DatasetError(f"--{option} {value} is too few", f"Give {least} or more.")
    for option, positive in (
        ("temperature", options.temperature),
        ("bucket-width", options.bucket_width),
    ):
        if not positive > 0:
            raise DatasetError(f"--{option} {positive} is not above 0", "Give a positive number.")
    if options.bucket_width < _NARROWEST:
        raise DatasetError(
            f"--bucket-width {options.bucket_width} is too narrow", f"Give {_NARROWEST:g} or more."
        )
