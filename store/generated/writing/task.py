"""A generated task with its kernels, as texts, and the draws from a seed that decide about it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

_T = TypeVar("_T")
Language: TypeAlias = Literal["torch", "cpp", "triton", "cuda"]


@dataclass(frozen=True)
class TeacherKernel:
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
    kernels: tuple[TeacherKernel, ...]
    steps: int | None = None
    """Number of elementwise steps; None in families that cannot be asked for a number of them."""


class Draw:
    """A sequence of draws: every number is a hash of the key and its place, on every machine."""

    def __init__(self, *key: str | int) -> None:
        self._key = "\0".join(str(part) for part in key)
        self._count = 0

    def integer_below(self, count: int) -> int:
        """Return a whole number from 0 to `count` - 1."""
        self._count += 1
        digest = hashlib.sha256(f"{self._key}\0{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % count

    def choice(self, options: Sequence[_T]) -> _T:
        """Return one of the options."""
        return options[self.integer_below(len(options))]

    def number(self, low: float, high: float) -> float:
        """Return a number of two decimals between `low` and `high`."""
        least, most = round(low * 100), round(high * 100)
        return (least + self.integer_below(most - least + 1)) / 100

    def sizes(
        self, rows: Sequence[int], cols: Sequence[int], least: int, most: int
    ) -> dict[str, int]:
        """Return ROWS and COLS with a product from `least` to `most`."""
        pairs = [(r, c) for r in rows for c in cols if least <= r * c <= most]
        return dict(zip(("ROWS", "COLS"), self.choice(pairs), strict=True))
