"""Draws from a seed: every number is a hash of the seed, the family and its place."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


class Draw:
    """A sequence of draws that depends on its key alone, on every machine and version."""

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
