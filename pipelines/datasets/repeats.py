"""Chooses the rows that are new and short enough by their texts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

from pipelines.contract.rows import Message


def choose_rows(
    digests: Sequence[Sequence[str]],
    tokens: Sequence[int],
    max_tokens: int | None,
    seen: set[bytes],
    dropped: Counter[str],
) -> Iterator[int]:
    """Yield the places of rows that are new and short enough; add to `seen` and `dropped`."""
    for index, digest in enumerate(digests):
        whole = hashlib.sha256("".join(digest).encode()).digest()
        if max_tokens is not None and tokens[index] > max_tokens:
            dropped["row: over length"] += 1
        elif whole in seen:
            dropped["row: duplicate"] += 1
        else:
            seen.add(whole)
            yield index


def join_texts(texts: dict[str, list[Message]]) -> str:
    """Return all text of a row, for counting its tokens."""
    return "".join(turn["content"] for turns in texts.values() for turn in turns)
