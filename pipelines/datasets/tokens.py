"""Counts the tokens of texts: with a tokenizer file, or estimated from the bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from store.errors import DatasetError

Count: TypeAlias = Callable[[list[str]], list[int]]
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Counts the tokens of texts; special tokens of a chat template are not counted."""

    name: str
    """Part of the recipe: the estimate's rule, or the hash of the tokenizer file."""
    words: str
    """A description for people."""
    count: Count


def make_counter(tokenizer: Path | None) -> Counter:
    """Return the counter of a tokenizer.json (or its folder); None estimates.

    Raises:
        DatasetError: no such file, or the tokenizers package is not installed.
    """
    if tokenizer is None:
        return Counter(
            name=f"utf-8 bytes / {BYTES_PER_TOKEN}",
            words=f"estimated as bytes / {BYTES_PER_TOKEN}",
            count=lambda texts: [-(-len(text.encode()) // BYTES_PER_TOKEN) for text in texts],
        )
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if not file.is_file():
        raise DatasetError(
            f"no tokenizer at {file}", "Give a tokenizer.json, or the model folder that holds it."
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DatasetError(
            "counting tokens needs the package tokenizers",
            'Install "kernel-flywheel[train]", or leave --tokenizer out for an estimate.',
        ) from error
    data = file.read_bytes()
    try:
        loaded = Tokenizer.from_buffer(data)
    except ValueError as error:
        raise DatasetError(f"{file} is no tokenizer: {error}") from error
    return Counter(
        name=f"sha256:{hashlib.sha256(data).hexdigest()}",
        words=f"by {file.parent.name}/{file.name}",
        count=lambda texts: [
            len(one.ids) for one in loaded.encode_batch_fast(texts, add_special_tokens=False)
        ],
    )
