"""What every pipeline is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from store.errors import DatasetError

Purpose: TypeAlias = Literal["train", "eval"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every pipeline is asked."""

    purpose: Purpose = "train"
    """train: tasks of the train split. eval: tasks of the test split, and every row says so."""
    seed: int = 0
    """Seed of every draw."""
    limit: int | None = None
    """Most rows to make (default: as many as the pipeline makes by itself)."""
    degenerate: Annotated[bool, Parameter(name=("--degenerate", "--include-weak"))] = False
    """Take weak tasks, too: an answer without work passes them."""
    include_nonequivalent: bool = False
    """Take correct kernels, too, that are another function than their task's module."""

    def __post_init__(self) -> None:
        """Refuse a limit that leaves nothing."""
        if self.limit is not None and self.limit < 1:
            raise DatasetError(f"--limit {self.limit} leaves no row", "Give 1 or more.")
