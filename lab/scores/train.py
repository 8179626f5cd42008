"""Trains a model on the rows, in one place: order, loss, optimizer, budget, and how it resumes.

    python -m lab.scores.train ROWS --model MODEL --out OUT --seed 0 --budget-s 540

A plain loop over PyTorch instead of `trainers run sft`, because the machine with the GPU has no
lake. A run that reaches its budget saves its state in OUT, and the same command goes on from there.
OUT/final is the trained model; with --lora it is an adapter, which is small enough to be copied.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.scores import model as models
from lab.scores.budget import Budget, say
from lab.scores.tasks import THIRDS, list_third
from store.errors import FlywheelError

if TYPE_CHECKING:
    import torch

_RESERVE_S = 15.0
"""The state is saved in this time."""
_SAVE_S = 150.0
"""A command that is killed loses at most this much."""
_REPORTED = (5, 50)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a training goes."""

    epochs: int = 2
    batch: int = 16
    """Rows of a step."""
    learning_rate: float = 2e-4
    warmup: float = 0.03
    """Share of the steps in which the learning rate rises."""
    clip: float = 1.0
    seed: int = 0
    """Decides the order of the rows."""


@dataclass(frozen=True)
class Example:
    """A row as tokens."""

    prompt: list[int]
    answer: list[int]


def read_examples(
    rows: Path, tokenizer: Any, unseen: Collection[str] = frozenset()
) -> list[Example]:
    """Return the rows as tokens; a row with several copies is there as often.

    unseen: Tasks whose rows are left out.
    """
    import pyarrow.parquet as pq

    examples: list[Example] = []
    for row in pq.read_table(rows).to_pylist():
        if row["task_id"] in unseen:
            continue
        prompt = models.encode_prompt(tokenizer, row["prompt"])
        answer = models.encode_answer(tokenizer, row["completion"][0]["content"])
        examples += [Example(prompt, answer)] * row["copies"]
    return examples


def draw_order(count: int, plan: Plan) -> list[list[int]]:
    """Return the rows of every step; the last step of an epoch may be smaller."""
    steps: list[list[int]] = []
    for epoch in range(plan.epochs):
        order = list(range(count))
        random.Random(f"{plan.seed}:{epoch}").shuffle(order)
        steps += [order[at : at + plan.batch] for at in range(0, count, plan.batch)]
    return steps


def scale_rate(step: int, steps: int, plan: Plan) -> float:
    """Return the factor of the learning rate at a step: a short rise, then a cosine to 0."""
    rise = max(1, round(plan.warmup * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def compute_loss(model: Any, examples: Sequence[Example], padding: int) -> torch.Tensor:
    """Return the mean loss over all tokens of the answers."""
    import torch
    from torch.nn import functional

    layers, head = models.find_layers(model)
    device = next(model.parameters()).device
    tokens = models.pad([one.prompt + one.answer for one in examples], padding).to(device)
    # The token before each token of an answer predicts it.
    marks = [[0] * (len(one.prompt) - 1) + [1] * len(one.answer) + [0] for one in examples]
    predicts = models.pad(marks, 0).to(device).bool()
    # Rows are padded on the right, where causal attention never looks: a mask would only cost time.
    hidden = layers(input_ids=tokens, use_cache=False).last_hidden_state
    targets = torch.roll(tokens, -1, dims=1)[predicts]
    return functional.cross_entropy(head(hidden[predicts]).float(), targets)


def train(
    model: Any, examples: Sequence[Example], plan: Plan, out: Path, budget: Budget, padding: int
) -> bool:
    """Train until the end or the end of the budget; return whether all steps are done."""
    import torch

    device = next(model.parameters()).device.type
    weights = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=plan.learning_rate, weight_decay=0.0)
    steps = draw_order(len(examples), plan)
    state, first, saved_s = out / "state.pt", 0, budget.spent
    if state.exists():
        saved = torch.load(state, map_location=device, weights_only=True)
        if saved["plan"] != asdict(plan):
            raise FlywheelError(
                f"{state} is of another plan: {saved['plan']}", "Name another --out."
            )
        model.load_state_dict(saved["model"], strict=False)
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    tokens = plan.epochs * sum(len(one.prompt) + len(one.answer) for one in examples)
    step_s = models.guess_seconds(model, tokens / len(steps), device, trains=True)
    budget.announce("steps", len(steps) - first, step_s)
    model.train()
    out.mkdir(parents=True, exist_ok=True)
    with (out / "loss.jsonl").open("a", encoding="utf-8") as log:
        for step in range(first, len(steps)):
            ends = budget.left < _RESERVE_S
            if ends or budget.spent - saved_s > _SAVE_S:
                save_state(state, model, optimizer, step, plan)
                saved_s = budget.spent
            if ends:
                say(f"stopped at step {step} of {len(steps)}; the same command goes on")
                return False
            for group in optimizer.param_groups:
                group["lr"] = plan.learning_rate * scale_rate(step, len(steps), plan)
            with models.autocast(device):
                loss = compute_loss(model, [examples[row] for row in steps[step]], padding)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, plan.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done = step + 1 - first
            if done in _REPORTED or done % 100 == 0 or step + 1 == len(steps):
                log.write(json.dumps({"step": step + 1, "loss": loss.item()}) + "\n")
                log.flush()
                budget.report(f"loss {loss.item():.4f}, steps", done, len(steps) - first)
    return True


def save_state(file: Path, model: Any, optimizer: Any, step: int, plan: Plan) -> None:
    """Write what a training goes on from; a file that is there is replaced at once."""
    import torch

    trained = {name for name, one in model.named_parameters() if one.requires_grad}
    weights = {name: value for name, value in model.state_dict().items() if name in trained}
    partial = file.with_suffix(".partial")
    state = {"model": weights, "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state | {"plan": asdict(plan)}, partial)
    partial.replace(file)


def main() -> None:
    """Train, and write the model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--model", required=True, help="folder or .gguf file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=Plan.epochs)
    parser.add_argument("--learning-rate", type=float, default=Plan.learning_rate)
    parser.add_argument("--lora", type=int, help="rank of adapters; default: all weights")
    parser.add_argument(
        "--unseen", type=int, choices=range(THIRDS), help="leave out this third of the shapes"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget-s", type=float, required=True)
    given = parser.parse_args()
    budget = Budget(given.budget_s)
    final = given.out / "final"
    if final.exists():
        say(f"{final} is there already")
        return
    import torch

    torch.manual_seed(given.seed)
    model, tokenizer = models.load(given.model, given.out / "unpacked", given.device, given.lora)
    plan = Plan(epochs=given.epochs, learning_rate=given.learning_rate, seed=given.seed)
    unseen = frozenset[str]() if given.unseen is None else list_third(given.unseen)
    examples = read_examples(given.rows, tokenizer, unseen)
    if train(model, examples, plan, given.out, budget, tokenizer.pad_token_id):
        partial = given.out / "final.partial"
        if given.lora is not None:
            model.bfloat16()
        model.save_pretrained(str(partial))
        tokenizer.save_pretrained(str(partial))
        partial.rename(final)
        say(f"trained in {budget.spent:.0f} s → {final}")


if __name__ == "__main__":
    main()
