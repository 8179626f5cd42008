"""The tiny preset: a small model that has seen a few answers often enough to give them.

A model of 3M parameters learns no CUDA in a minute. Overfitted on short answers, some right, some
wrong and some fast, it emits different kernels that parse. This gives real work to every part of
the loop: verdicts, rewards, advantages, exemplars.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.models import loading

if TYPE_CHECKING:
    from pipelines import Message

STEPS = 44
"""Optimisation steps after which sampled answers parse, nearly always."""
_BATCH = 4
_TAIL_TOKENS = 16
"""Tokens at the end of a prompt that most steps see; a whole prompt takes twenty times as long."""
_WHOLE_EVERY = 4
"""One in this many steps sees whole prompts, so that answers depend on the task."""
_LEARNING_RATE = 5e-3

_ANSWER = """### Analysis
Fastest: Kernel {fastest}

### Design
{design}

### Code
```python
import torch

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return {value}
```"""

TEMPLATES: dict[str, tuple[tuple[str, str], ...]] = {
    "diag_matmul": (
        ("Scale rows.", "(b.T * a).T"),
        ("Multiply.", "a.diag() @ b"),
    ),
    "triangular_matmul": (
        ("Scale rows.", "(b.T * a).T"),
        ("Multiply.", "a.tril() @ b"),
    ),
}
"""Design and value by starter task. Both tasks take a and b, so that a model that cannot
distinguish them still gives some right and some wrong answers."""


def make_answers(task: str) -> list[str]:
    """Return the answers to a task, in their order."""
    return [
        _ANSWER.format(fastest=1 + place % 2, design=design, value=value)
        for place, (design, value) in enumerate(TEMPLATES[task])
    ]


def overfit(
    base: Path,
    prompts: Mapping[str, Sequence[list[Message]]],
    out: Path,
    seed: int,
    say: Callable[[str], None],
) -> Path:
    """Train a model on the answers to these prompts, and return the folder it was put in.

    Args:
        base: Folder of the model to begin with.
        prompts: Prompts of each task, in every form that it is to answer.
        out: Folder to write.
        seed: Seed of the order.
        say: Called with a line about the result.
    """
    import torch

    tokenizer: Any = loading.load_tokenizer(base)
    model: Any = loading.load_model(base)
    model.train()
    asked = {
        task: [_ids(tokenizer, messages) for messages in several]
        for task, several in prompts.items()
    }
    told = {
        task: [_completion(tokenizer, answer) for answer in make_answers(task)] for task in asked
    }
    draw = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
    loss = math.nan
    for step in range(STEPS):
        whole = step % _WHOLE_EVERY == _WHOLE_EVERY - 1
        if whole:
            # One answer of each task in turn, so that none is preferred.
            turn = step // _WHOLE_EVERY
            chosen = [(task, told[task][turn % len(told[task])]) for task in sorted(told)]
        else:
            every = [(task, answer) for task in sorted(told) for answer in told[task]]
            chosen = draw.sample(every, min(_BATCH, len(every)))
        rows = [
            (draw.choice(asked[task])[0 if whole else -_TAIL_TOKENS :], answer)
            for task, answer in chosen
        ]
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * min(1.0, (step + 1) / 5) * _cosine(step / STEPS)
        loss = _step(model, rows, tokenizer.pad_token_id)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    count = sum(map(len, told.values()))
    say(f"overfitted on {count} answers in {STEPS} steps: loss {loss:.3f}")
    model.save_pretrained(str(out))
    tokenizer.save_pretrained(str(out))
    return out


def _step(model: Any, rows: Sequence[tuple[list[int], list[int]]], pad: int) -> float:
    """Add the gradient of one batch; return its loss per token of the answers."""
    import torch

    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for row, (prompt, answer) in enumerate(rows):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        labels[row, len(prompt) : end] = torch.tensor(answer)
        mask[row, :end] = 1
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    return float(loss.detach())


def _ids(tokenizer: Any, messages: list[Message]) -> list[int]:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def _completion(tokenizer: Any, answer: str) -> list[int]:
    return [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def _cosine(share: float) -> float:
    return 0.1 + 0.45 * (1 + math.cos(math.pi * share))
