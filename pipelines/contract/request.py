"""What every pipeline is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from store.errors import DatasetError

Purpose: TypeAlias = Literal["train", "eval"]
Shapes: TypeAlias = Literal["any", "honest", "held"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every pipeline is asked."""

    purpose: Purpose = "train"
    """train: tasks of the train split. eval: tasks of the test split; every row records that."""
    seed: int = 0
    """Random seed."""
    limit: int | None = None
    """Write at most N rows (default: no limit)."""
    include_weak: bool = False
    """Include weak tasks, which trivial answers pass."""
    include_nonequivalent: bool = False
    """Include correct kernels that compute a different function than their task."""
    shapes: Shapes = "honest"
    """held: take only kernels that are correct at every other shape of the task that was tried.
    honest: leave out those that are wrong at another shape. any: take those as well."""
    tasks: Annotated[tuple[str, ...] | None, Parameter(parse=False)] = None
    """Ids of the only tasks to select rows for (default: all of the purpose). Their rows are those
    that a request for all tasks gives, unless it has a limit, which counts the rows of all tasks.
    An improvement share is refused. Commands have no option for it."""

    def __post_init__(self) -> None:
        """Refuse a limit that leaves nothing, and a seed that no column can have."""
        if self.limit is not None and self.limit < 1:
            raise DatasetError(f"--limit {self.limit} leaves no row", "Give 1 or more.")
        if not 0 <= self.seed < 2**63:
            raise DatasetError(f"--seed {self.seed} is out of range", "Give 0 to 2^63 - 1.")
