"""Trains a model by its own attempts at the train tasks: GRPO, with or without scores in prompts.

    python -m lab.scores.grpo ROWS SURFACE --model OUT/final --out OUT --seed 0 [--no-scores]

A group is several attempts at one prompt, drawn from the model's probabilities. An attempt is a
setting of the grid, or an answer that is not on it. Its reward is the outcome that SURFACE has for
the setting: the logarithm of its speedup. An answer off the grid has the lowest outcome of the
task, so that training does not move probability to where nothing is measured. The advantage of an
attempt is its reward minus the mean of the group, divided by the standard deviation of the group
(Shao et al. 2024, DeepSeekMath, 4.1.2). Each group is used for one step, so the ratio of policies
is 1 and needs no clipping. There is no penalty for moving away from the first model.

The prompts are training prompts whose two scores differ by a factor of 1.5 or more. --no-scores
removes the scores from the same prompts. OUT/final is the trained model. A training that is stopped
begins anew.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.scores import model as models
from lab.scores.budget import say
from lab.scores.score import (
    Prompt,
    Trie,
    build_trie,
    read_gate_rows,
    read_surface,
    score_batch,
)

if TYPE_CHECKING:
    import torch

_PART = 8
"""Prompts whose gradients are computed at once, for which a GPU has to have memory."""
_SCORE = re.compile(r"^(Kernel \d): \d+\.\d\dx as fast as the module$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a training goes."""

    steps: int = 100
    prompts: int = 32
    """Prompts of a step, of one family."""
    group: int = 8
    """Attempts at a prompt."""
    learning_rate: float = 2e-5
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Question:
    """A prompt, and the task whose outcomes reward its answers."""

    prompt: Prompt
    task_id: str


def hide_scores(text: str) -> str:
    r"""Return a prompt without the scores of its kernels.

    >>> hide_scores("Kernel 1: 2.50x as fast as the module\n\nx = 1")
    'Kernel 1\n\nx = 1'
    """
    return _SCORE.sub(r"\1", text)


def read_questions(rows: Path, tokenizer: Any, *, scores: bool) -> list[Question]:
    """Return the prompts to train on, with or without their scores."""
    questions: list[Question] = []
    for row, family in read_gate_rows(rows):
        [turn] = row["prompt"]
        text = turn["content"] if scores else hide_scores(turn["content"])
        tokens = models.encode_prompt(tokenizer, [{"role": "user", "content": text}])
        prompt = Prompt(row["prompt_id"], family, True, tokens)
        questions.append(Question(prompt, row["task_id"]))
    return questions


def compute_loss(
    model: Any,
    questions: Sequence[Question],
    trie: Trie,
    outcomes: Mapping[tuple[str, str], float],
    plan: Plan,
    padding: int,
    generator: torch.Generator,
) -> tuple[torch.Tensor, float]:
    """Return the mean loss of some prompts, and the mean outcome of their attempts.

    outcomes: Logarithm of the speedup of each task and setting.
    """
    import torch

    settings = [setting for _, setting in trie.heads]
    rewards_of = {
        name: [outcomes[name, setting] for setting in settings]
        for name in {one.task_id for one in questions}
    }

    logs = score_batch(model, [one.prompt for one in questions], trie, padding)
    on_grid = logs.exp().sum(dim=1, keepdim=True).clamp(max=1 - 1e-6)  # sums may round to 1
    logs = torch.cat([logs, torch.log1p(-on_grid)], dim=1)
    chances = logs.detach().exp().cpu()
    drawn = torch.multinomial(chances, plan.group, replacement=True, generator=generator)
    # The last action is an answer off the grid.
    known = [[*rewards_of[one.task_id], min(rewards_of[one.task_id])] for one in questions]
    rewards = torch.tensor(known).gather(1, drawn)
    spread = rewards.std(dim=1, keepdim=True)
    advantages = (rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4)
    taken = logs.gather(1, drawn.to(logs.device))
    return -(advantages.to(logs) * taken).mean(), float(rewards.mean())


def train(
    model: Any,
    tokenizer: Any,
    questions: Sequence[Question],
    outcomes: Mapping[tuple[str, str], float],
    plan: Plan,
    out: Path,
) -> None:
    """Train, and log the loss and the mean outcome of each step."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    by_family: dict[str, list[Question]] = {}
    for one in questions:
        by_family.setdefault(one.prompt.family, []).append(one)
    tries = {name: build_trie(name, shows=True, tokenizer=tokenizer) for name in by_family}
    names = sorted(by_family)
    draw = random.Random(plan.seed)
    out.mkdir(parents=True, exist_ok=True)
    model.train()
    with (out / "rewards.jsonl").open("w", encoding="utf-8") as log:
        for step in range(plan.steps):
            family = names[step % len(names)]
            count = min(plan.prompts, len(by_family[family]))
            chosen = draw.sample(by_family[family], count)
            generator = torch.Generator().manual_seed(plan.seed * 1_000_003 + step)
            total, outcome = 0.0, 0.0
            for at in range(0, count, _PART):
                part = chosen[at : at + _PART]
                loss, mean = compute_loss(
                    model, part, tries[family], outcomes, plan, tokenizer.pad_token_id, generator
                )
                share = len(part) / count
                (loss * share).backward()
                total += loss.item() * share
                outcome += mean * share
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            values = {"step": step + 1, "family": family, "loss": total, "outcome": outcome}
            log.write(json.dumps(values) + "\n")
            log.flush()
            if step + 1 in (5, 50) or step + 1 == plan.steps:
                say(f"step {step + 1} of {plan.steps}: mean outcome {outcome:.3f}")


def main() -> None:
    """Train, and write the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("surface", type=Path)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-scores", action="store_true", help="prompts lack their scores")
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    model, tokenizer = models.load(given.model, given.out, given.device)
    questions = read_questions(given.rows, tokenizer, scores=not given.no_scores)
    plan = Plan(steps=given.steps, seed=given.seed)
    outcomes = read_surface(given.surface, "outcome")
    train(model, tokenizer, questions, outcomes, plan, given.out)
    model.save_pretrained(str(given.out / "final"))
    tokenizer.save_pretrained(str(given.out / "final"))
    say(f"trained → {given.out / 'final'}")


if __name__ == "__main__":
    main()
