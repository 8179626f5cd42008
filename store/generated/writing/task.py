"""A generated task with its kernels, as texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Language: TypeAlias = Literal["torch", "cpp", "triton", "cuda"]


@dataclass(frozen=True)
class Kernel:
    """One kernel of the teacher."""

    variant: str
    """Name among the kernels of the task."""
    code: str
    about: str
    """What it does; the first line of the text."""
    language: Language
    techniques: tuple[str, ...]
    """What makes it fast or slow."""

    @property
    def right(self) -> bool:
        """Whether it is meant to be right; others are meant to fail."""
        return not self.variant.startswith("wrong_")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task with right kernels of different speed, and some that are wrong."""

    title: str
    level: int
    """1 one operation, 2 a chain, 3 a chain with a reduction."""
    code: str
    analysis: str
    """Where the reference spends its time."""
    cuda: dict[str, int]
    """Sizes for a GPU: names of the text and the values that replace them."""
    kernels: tuple[Kernel, ...]
    steps: int | None = None
    """Number of elementwise steps; None in families that cannot be asked for a number of them."""
