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

from store.errors import FlywheelError, UnknownName
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.rollouts.prompts import (
    Draw,
    derive_step_seed,
    render_bare_prompts,
    render_prompts,
)
from trainers.runs.recording import Run

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


def list_short_prompts(prompts: Dataset) -> tuple[set[str], dict[str, list[list[Message]]]]:
    """Return the tasks of a dataset that have short answers, and their prompts by name.

    Raises FlywheelError: the dataset asks for none of them.
    """
    rows = [
        row
        for row in prompts.table(["task_id", "task", "prompt"]).to_pylist()
        if row["task"] in TEMPLATES
    ]
    if not rows:
        raise FlywheelError(
            f"dataset {prompts.name} asks for none of {', '.join(TEMPLATES)}",
            "These are tasks of `store import starter`; or give a --model and no --overfit.",
        )
    prompts_by_task: dict[str, list[list[Message]]] = {}
    for row in rows:
        prompts_by_task.setdefault(row["task"], []).append(row["prompt"])
    return {row["task_id"] for row in rows}, prompts_by_task


def render_short_prompts(
    run: Run, task_ids: Sequence[str], draw: Draw
) -> dict[str, list[list[Message]]]:
    """Return the prompts of tasks with short answers, with and without exemplars, by task."""
    with run.reader(run.pinned_snapshot) as lake:
        names = {
            row["task_id"]: row["name"]
            for row in lake.run('SELECT task_id, task AS "name" FROM task_names').rows()
        }
        known = [task_id for task_id in task_ids if names[task_id] in TEMPLATES]
        if not known:
            raise UnknownName.among("task to overfit on", names[task_ids[0]], TEMPLATES)
        forms = (
            render_bare_prompts(lake, draw, known),
            render_prompts(lake, draw, derive_step_seed(0, 0), known),
        )
    prompts: dict[str, list[list[Message]]] = {}
    for prompt in (one for form in forms for one in form):
        prompts.setdefault(names[prompt.task_id], []).append(prompt.messages)
    return prompts


def overfit_on_short_answers(
    run: Run,
    base: Path,
    seed: int,
    list_prompts: Callable[[], Mapping[str, Sequence[list[Message]]]],
) -> Path:
    """Return the folder of the model overfitted on short answers; made once.

    `list_prompts` returns the prompts of each task, in every form that the model is to answer, by
    the name of the task; it is called if the model is missing.
    """

    def write(folder: Path) -> None:
        import torch

        tokenizer: Any = loading.load_tokenizer(base)
        model: Any = loading.load_model(base)
        model.train()
        prompts = {
            task: [
                tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
                for messages in several
            ]
            for task, several in list_prompts().items()
        }
        answers = {
            task: [
                [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
                for text in make_answers(task)
            ]
            for task in prompts
        }
        pairs = [(task, answer) for task in sorted(answers) for answer in answers[task]]
        draw = random.Random(seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=0.0)
        loss = math.nan
        for step in range(STEPS):
            whole = step % _WHOLE_EVERY == _WHOLE_EVERY - 1
            if whole:
                # One answer of each task in turn, so that none is preferred.
                turn = step // _WHOLE_EVERY
                chosen = [
                    (task, answers[task][turn % len(answers[task])]) for task in sorted(answers)
                ]
            else:
                chosen = draw.sample(pairs, min(_BATCH, len(pairs)))
            rows = [
                (draw.choice(prompts[task])[0 if whole else -_TAIL_TOKENS :], answer)
                for task, answer in chosen
            ]
            # Five steps of warm-up, then a cosine down to a tenth.
            decay = 0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS))
            for group in optimizer.param_groups:
                group["lr"] = _LEARNING_RATE * min(1.0, (step + 1) / 5) * decay
            longest = max(len(prompt) + len(answer) for prompt, answer in rows)
            ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
            labels = torch.full((len(rows), longest), -100)  # which count in no loss
            mask = torch.zeros((len(rows), longest), dtype=torch.long)
            for row, (prompt, answer) in enumerate(rows):
                end = len(prompt) + len(answer)
                ids[row, :end] = torch.tensor(prompt + answer)
                labels[row, len(prompt) : end] = torch.tensor(answer)
                mask[row, :end] = 1
            batch_loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
            batch_loss.backward()
            loss = float(batch_loss.detach())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        run.job.say(f"overfitted on {len(pairs)} answers in {STEPS} steps: loss {loss:.3f}")
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))

    return loading.write_once(run.job.out / "model" / "overfitted", write)
