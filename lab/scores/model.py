"""A model, and its texts as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.scores.answer import split_answer

if TYPE_CHECKING:
    import torch

_FLOPS = {"cuda": 1e14, "cpu": 3e10}
"""Assumed operations per second, before the first steps tell."""


def load(model: str, scratch: Path, device: str, lora: int | None = None) -> tuple[Any, Any]:
    """Return a model with float32 weights on a device, and its tokenizer.

    Args:
        model: a folder or a .gguf file.
        scratch: where a .gguf file is unpacked.
        device: cpu or cuda.
        lora: rank of new adapters to train; None for all weights.
    """
    from trainers.models import loading

    folder = loading.find_model(model, scratch)
    made: Any = loading.load_model(folder)
    if lora is not None:
        from peft import get_peft_model

        made = get_peft_model(made, loading.make_adapter_config(folder, lora))
    return made.to(device), loading.load_tokenizer(folder)


def find_layers(model: Any) -> tuple[Any, Any]:
    """Return the part of a model that computes hidden states, and the one that makes logits."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    return whole.model, whole.lm_head


def autocast(device: str) -> AbstractContextManager[Any]:
    """Return the precision of computations: bfloat16 on a GPU."""
    if device == "cpu":
        return nullcontext()
    import torch

    return torch.autocast(device, dtype=torch.bfloat16)


def count_parameters(model: Any) -> int:
    """Return the number of weights."""
    return sum(parameter.numel() for parameter in model.parameters())


def guess_seconds(model: Any, tokens: float, device: str, *, trains: bool) -> float:
    """Return the seconds that tokens are expected to take."""
    return tokens * count_parameters(model) * (6 if trains else 2) / _FLOPS[device]


def encode(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text, without special ones of the tokenizer's own."""
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def encode_prompt(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return the tokens of a prompt, up to where the answer begins."""
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    return encode(tokenizer, text)


def encode_answer(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of an answer with its end, part by part."""
    parts = [encode(tokenizer, part) for part in split_answer(text)]
    return [*(token for part in parts for token in part), tokenizer.eos_token_id]


def pad(rows: Sequence[Sequence[int]], value: int, *, left: bool = False) -> torch.Tensor:
    """Return rows as one tensor, filled up on the right, or on the left."""
    import torch

    most = max(map(len, rows))
    filled = [
        [value] * (most - len(row)) + [*row] if left else [*row] + [value] * (most - len(row))
        for row in rows
    ]
    return torch.tensor(filled)
