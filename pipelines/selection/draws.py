"""Which exemplars a prompt shows: draws that are hashes of seed, task and number of the draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from pipelines.contract.rows import Request
from pipelines.selection.rules import sql
from store.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow as pa

    import store

Strategy: TypeAlias = Literal["bucket", "random", "none", "island", "top"]
MOST_ROWS = 2**62


class Choice(Protocol):
    """The options of a draw."""

    @property
    def strategy(self) -> Strategy:
        """Which SQL draws."""
        ...

    @property
    def exemplars(self) -> int:
        """Kernels of a prompt."""
        ...

    @property
    def per_task(self) -> int | None:
        """Prompts of a task; None leaves it to the limit."""
        ...

    @property
    def temperature(self) -> float:
        """Temperature of the softmax over buckets."""
        ...

    @property
    def bucket_width(self) -> float:
        """Width of a bucket."""
        ...

    @property
    def islands(self) -> int:
        """Number of islands."""
        ...


def draw(lake: store.Lake, candidates: pa.Table, choice: Choice, request: Request) -> pa.Table:
    """Return one row per exemplar: row_index, task_id, draw, kernel_id, score.

    Args:
        lake: Where the SQL runs; `eligible` is there: task_id, kernel_id and score of every kernel
            that may be shown. No other rows are read.
        candidates: task_id of every task that gets prompts.
        choice: Strategy and its constants.
        request: Seed and number of rows.

    Raises:
        DatasetError: an option is out of its range.
    """
    check(choice)
    per_task = choice.per_task or 1
    if choice.per_task is None and request.limit is not None and candidates.num_rows:
        per_task = max(1, -(-request.limit // candidates.num_rows))
    lake.register("candidates", candidates.select(["task_id"]))
    draws = lake.run(
        sql("contrastive_batch", "draws"),
        {
            "seed": request.seed,
            "per_task": per_task,
            "limit": MOST_ROWS if request.limit is None else request.limit,
        },
    ).arrow()
    lake.register("draws", draws)
    values: dict[str, dict[str, object]] = {
        "bucket": {
            "seed": request.seed,
            "exemplars": choice.exemplars,
            "bucket_width": choice.bucket_width,
            "temperature": choice.temperature,
            "islands": choice.islands if choice.strategy == "island" else 1,
        },
        "random": {"seed": request.seed, "exemplars": choice.exemplars},
        "top": {"exemplars": choice.exemplars},
        "none": {},
    }
    name = "bucket" if choice.strategy == "island" else choice.strategy
    return lake.run(sql("contrastive_batch", name), values[name]).arrow()


def check(choice: Choice) -> None:
    """Raise DatasetError, naming the option, where a constant of the draw is out of its range."""
    for option, value, least in (
        ("exemplars", choice.exemplars, 1),
        ("islands", choice.islands, 1),
        ("per-task", choice.per_task or 1, 1),
    ):
        if value < least:
            raise DatasetError(f"--{option} {value} is too few", f"Give {least} or more.")
    for option, positive in (
        ("temperature", choice.temperature),
        ("bucket-width", choice.bucket_width),
    ):
        if not positive > 0:
            raise DatasetError(f"--{option} {positive} is not above 0", "Give a positive number.")
