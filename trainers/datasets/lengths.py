"""Rows that are longer than the model's limit, which TRL would truncate silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.errors import DatasetError
from trainers.runs.job import OverLength

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

_BATCH_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths of a dataset's rows, in tokens of one tokenizer."""

    rows: int
    tokens: int
    longest: int
    kept: list[int]
    """Indices of the rows that fit."""

    @property
    def over(self) -> int:
        """Return the number of rows that do not fit."""
        return self.rows - len(self.kept)


def measure_lengths(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Lengths:
    """Return the lengths of rows with prompt and completion, as TRL renders them."""
    found: list[int] = []
    for start in range(0, len(rows), _BATCH_ROWS):
        batch: dict[str, Any] = rows[start : start + _BATCH_ROWS]
        turns = [
            [*prompt, *completion]
            for prompt, completion in zip(batch["prompt"], batch["completion"], strict=True)
        ]
        encoded: Any = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)
        found += [len(one) for one in encoded["input_ids"]]
    return Lengths(
        rows=len(found),
        tokens=sum(found),
        longest=max(found, default=0),
        kept=[index for index, length in enumerate(found) if length <= max_length],
    )


def check_lengths(found: Lengths, max_length: int, over_length: OverLength) -> Lengths:
    """Return the lengths if the rows can be trained on.

    Raises:
        DatasetError: rows are over length and are not to be dropped, or none is left.
    """
    if not found.over:
        return found
    told = (
        f"{found.over} of {found.rows} rows are longer than {max_length} tokens; "
        f"the longest has {found.longest}"
    )
    if over_length == "refuse" or not found.kept:
        raise DatasetError(
            told, f"Give --max-length {found.longest}, or --over-length drop to leave them out."
        )
    return found
