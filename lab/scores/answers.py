"""Samples single answers, to be looked up in the grid.

    python -m lab.scores.answers ARMS --model OUT/final --out SCORES --seed 0 --budget-s 540

The first four draws of every arm get one answer each, and a prompt without kernels four. Batches
have seeds of their own and are written one by one, so the same command goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.scores import model as models
from lab.scores.answer import read_kernel
from lab.scores.budget import Budget, say
from store import ids

_SAMPLES = 4
_TEMPERATURE = 0.8
_MOST_TOKENS = 800
_RESERVE_S = 40.0
_TOKEN_S = {"cuda": 0.03, "cpu": 0.05}
"""Assumed seconds of a token of a batch."""


@dataclass(frozen=True)
class Place:
    """One answer to sample."""

    prompt_id: str
    task_id: str
    arm: str
    draw: int
    tokens: list[int]


def read_places(arms: Path, tokenizer: Any, operations: Sequence[str] | None = None) -> list[Place]:
    """Return the answers to sample, prompts of similar length together."""
    import pyarrow.parquet as pq

    places: list[Place] = []
    for row in pq.read_table(arms).to_pylist():
        if operations is not None and row["operation"] not in operations:
            continue
        tokens = models.encode_prompt(tokenizer, row["prompt"])
        for place in row["places"]:
            count = _SAMPLES if place["arm"] == "none" else int(place["draw"] <= _SAMPLES)
            places += [
                Place(row["prompt_id"], place["task_id"], place["arm"], place["draw"], tokens)
            ] * count
    return sorted(
        places, key=lambda one: (len(one.tokens), one.prompt_id, one.task_id, one.arm, one.draw)
    )


def sample(model: Any, tokenizer: Any, places: Sequence[Place], seed: int) -> list[dict[str, Any]]:
    """Return the answers of one batch."""
    import torch

    device = next(model.parameters()).device
    padding = tokenizer.pad_token_id
    tokens = models.pad([one.tokens for one in places], padding, left=True).to(device)
    kept = models.pad([[1] * len(one.tokens) for one in places], 0, left=True).to(device)
    torch.manual_seed(seed)
    with torch.inference_mode(), models.autocast(device.type):
        answers = model.generate(
            input_ids=tokens,
            attention_mask=kept,
            do_sample=True,
            temperature=_TEMPERATURE,
            top_k=0,
            top_p=1.0,
            max_new_tokens=_MOST_TOKENS,
            pad_token_id=padding,
            eos_token_id=tokenizer.eos_token_id,
        )[:, tokens.shape[1] :]
    rows: list[dict[str, Any]] = []
    for place, answer in zip(places, answers.tolist(), strict=True):
        text = tokenizer.decode(answer, skip_special_tokens=True)
        kernel = read_kernel(text)
        path = "kernel.py"
        rows.append(
            {
                "prompt_id": place.prompt_id,
                "task_id": place.task_id,
                "arm": place.arm,
                "draw": place.draw,
                "answer": text,
                "kernel_id": kernel and ids.kernel_id({path: kernel}, path, "ModelNew"),
            }
        )
    return rows


def main() -> None:
    """Sample all answers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arms", type=Path)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True, help="seed of the training")
    parser.add_argument("--operations", nargs="+", help="only tasks of these (default: all)")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget-s", type=float, required=True)
    given = parser.parse_args()
    import pyarrow as pa
    import pyarrow.parquet as pq

    budget = Budget(given.budget_s)
    model, tokenizer = models.load(given.model, given.out, given.device)
    model.eval()
    places = read_places(given.arms, tokenizer, given.operations)
    batches = [places[at : at + given.batch] for at in range(0, len(places), given.batch)]
    parts = given.out / f"answers-{given.seed}"
    parts.mkdir(parents=True, exist_ok=True)
    left = [place for place in range(len(batches)) if not (parts / f"{place}.parquet").exists()]
    budget.announce("batches of answers", len(left), _MOST_TOKENS * _TOKEN_S[given.device])
    for done, place in enumerate(left):
        if budget.left < _RESERVE_S:
            say(f"stopped with {len(left) - done} batches left; the same command goes on")
            return
        rows = sample(model, tokenizer, batches[place], 1000 * given.seed + place)
        partial = parts / f"{place}.partial"
        pq.write_table(pa.Table.from_pylist(rows), partial)
        partial.replace(parts / f"{place}.parquet")
        budget.report("batches of answers", done + 1, len(left))
    table = pa.concat_tables(
        [pq.read_table(parts / f"{place}.parquet") for place in range(len(batches))],
        promote_options="permissive",
    )
    pq.write_table(table, given.out / f"answers-{given.seed}.parquet", compression="zstd")
    say(f"{table.num_rows} answers in {budget.spent:.0f} s")


if __name__ == "__main__":
    main()
