"""Rounds of search by a trained model: the fastest kernels so far are the exemplars of a prompt.

    python -m lab.scores.search SURFACE ARMS --model OUT/final --out SEARCH --seed 0

Each test task has several chains of attempts. A chain begins with the two exemplars of a draw in
ARMS. In each round, the prompt shows the two fastest kernels of the chain, with their speedups (arm
`right`) or without (`no_scores`). The model answers once: a setting of the grid, drawn from its
probabilities, whose speedup SURFACE has. Both arms have the same draws, choose exemplars by the
same speedups, and make the same number of attempts.

SEARCH/search-SEED.parquet has a row for each attempt.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.scores import model as models
from lab.scores.answer import mask_sizes
from lab.scores.budget import say
from lab.scores.score import (
    Prompt,
    build_trie,
    divide_batches,
    read_surface,
    score_batch,
)
from lab.scores.tasks import GridTask, list_tasks, read_name

ARMS = ("right", "no_scores")
_TEMPLATE = "scored_settings.j2"


@dataclass(frozen=True)
class Chain:
    """Attempts at a task. The prompt of each attempt shows the fastest earlier ones."""

    task: GridTask
    draw: int
    scores: dict[str, float]
    """Speedups of the correct settings so far, as prompts show them."""

    @property
    def shown(self) -> list[str]:
        """The two fastest settings, in an order that does not tell which one is faster."""
        fastest = sorted(self.scores, key=lambda setting: (-self.scores[setting], setting))[:2]
        random.Random(f"{self.task.task_id}:{self.draw}:{sorted(fastest)}").shuffle(fastest)
        return fastest


def read_chains(arms: Path, count: int) -> list[Chain]:
    """Return chains that begin with the first exemplars of every test task."""
    import pyarrow.parquet as pq

    tasks = {task.task_id: task for task in list_tasks()}
    return [
        Chain(
            tasks[place["task_id"]],
            place["draw"],
            dict(zip(row["settings"], place["right_scores"], strict=True)),
        )
        for row in pq.read_table(arms).to_pylist()
        for place in row["places"]
        if place["arm"] == "right" and place["draw"] <= count
    ]


def write_prompt(chain: Chain, arm: str) -> list[dict[str, str]]:
    """Return the prompt of a chain, written as the pipeline writes those of its arm."""
    import pipelines

    shown = [
        {
            "code": chain.task.write_kernel(read_name(setting)),
            "score": chain.scores[setting] if arm == "right" else None,
        }
        for setting in chain.shown
    ]
    text = pipelines.render(_TEMPLATE, reference=mask_sizes(chain.task.code), shown=shown)
    return [{"role": "user", "content": text}]


def search(
    model: Any,
    tokenizer: Any,
    chains: Sequence[Chain],
    surface: Mapping[tuple[str, str], float | None],
    *,
    arm: str,
    rounds: int,
    batch: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """Yield the attempts of all chains, round by round; add those that are correct to the chains.

    surface: Speedup of each task and setting; None where its kernel is not correct.
    """
    import torch

    families = {chain.task.family for chain in chains}
    tries = {name: build_trie(name, shows=True, tokenizer=tokenizer) for name in families}
    for number in range(1, rounds + 1):
        places = {f"{chain.task.task_id}:{chain.draw}": chain for chain in chains}
        asked = [
            Prompt(
                name,
                chain.task.family,
                True,
                models.encode_prompt(tokenizer, write_prompt(chain, arm)),
            )
            for name, chain in places.items()
        ]
        for prompts in divide_batches(asked, batch):
            trie = tries[prompts[0].family]
            with torch.inference_mode():
                chances = score_batch(model, prompts, trie, tokenizer.pad_token_id).exp().tolist()
            for prompt, weights in zip(prompts, chances, strict=True):
                chain = places[prompt.prompt_id]
                draw = random.Random(f"{seed}:{arm}:{prompt.prompt_id}:{number}")
                [(_, setting)] = draw.choices(trie.heads, weights)
                yield {
                    "arm": arm,
                    "task_id": chain.task.task_id,
                    "draw": chain.draw,
                    "round": number,
                    "shown": chain.shown,
                    "setting": setting,
                }
                speedup = surface[chain.task.task_id, setting]
                if speedup is not None:
                    chain.scores[setting] = speedup


def main() -> None:
    """Search with both arms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("surface", type=Path)
    parser.add_argument("arms", type=Path)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True, help="seed of the training")
    parser.add_argument("--chains", type=int, default=8, help="chains of each task")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    import pyarrow as pa
    import pyarrow.parquet as pq

    model, tokenizer = models.load(given.model, given.out, given.device)
    model.eval()
    surface = read_surface(given.surface, "speedup")
    out = given.out.absolute()
    starts = {arm: read_chains(given.arms, given.chains) for arm in ARMS}
    os.chdir(Path(__file__).parent)  # whose folder flywheel has the template
    rows: list[dict[str, Any]] = []
    for arm, chains in starts.items():
        rows += search(
            model, tokenizer, chains, surface,
            arm=arm, rounds=given.rounds, batch=given.batch, seed=given.seed,
        )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"search-{given.seed}.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, compression="zstd")
    say(f"{len(rows)} attempts → {file}")


if __name__ == "__main__":
    main()
