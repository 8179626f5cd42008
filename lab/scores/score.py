"""Computes the probability of every setting for every prompt, by teacher forcing.

    python -m lab.scores.score ARMS ROWS --model OUT/final --out SCORES --seed 0 --budget-s 540

All heads of answers of a family form a trie: first `Fastest: Kernel K`, then the value of each
knob. One forward pass over a prompt and the nodes of its trie gives all probabilities, because a
node attends to the prompt and to the nodes on its path alone.

SCORES/prompts-SEED.parquet has a row for each prompt of ARMS, K and setting whose probability is at
least 1e-5, and SCORES/gate-SEED.parquet the same for training prompts of ROWS whose scores differ
by 1.5 and more.
Parts are written every few batches, so the same command goes on after its budget has ended.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.scores import model as models
from lab.scores.answer import read_setting, write_head
from lab.scores.budget import Budget, say
from lab.scores.tasks import KNOBS, THIRDS, list_settings, list_third, name_setting

if TYPE_CHECKING:
    import torch

GATE_ROWS = 500
GATE_RATIO = 1.5
LEAST = 1e-5
"""Smaller probabilities are not written: they would be most of the rows, and change nothing."""
_BATCHES_PER_PART = 20
_RESERVE_S = 15.0


@dataclass(frozen=True)
class Prompt:
    """A prompt whose answers are scored."""

    prompt_id: str
    family: str
    shows: bool
    """Whether it shows kernels, so that answers name the fastest."""
    tokens: list[int]


@dataclass(frozen=True)
class Trie:
    """The heads of answers as a tree of tokens; parents come before their children."""

    tokens: list[int]
    parents: list[int]
    """-1 for a node whose parent is the prompt."""
    depths: list[int]
    ends: list[int]
    """The last node of each head."""
    heads: list[tuple[int | None, str]]
    """K and setting of each head."""


def build_trie(family: str, *, shows: bool, tokenizer: Any) -> Trie:
    """Return the trie of all settings of a family, for each K if the prompt shows kernels."""
    places: dict[tuple[int, int], int] = {}
    trie = Trie([], [], [], [], [])
    for named in (1, 2) if shows else (None,):
        for setting in list_settings(family):
            parent = -1
            for part in write_head(setting, named):
                for token in models.encode(tokenizer, part):
                    node = places.setdefault((parent, token), len(trie.tokens))
                    if node == len(trie.tokens):
                        trie.tokens.append(token)
                        trie.parents.append(parent)
                        trie.depths.append(0 if parent < 0 else trie.depths[parent] + 1)
                    parent = node
            trie.ends.append(parent)
            trie.heads.append((named, name_setting(setting)))
    return trie


def score_batch(model: Any, prompts: Sequence[Prompt], trie: Trie, padding: int) -> torch.Tensor:
    """Return the log probability of every head of the trie (columns) for every prompt (rows).

    It has a gradient where gradients are enabled.
    """
    import torch

    layers, head = models.find_layers(model)
    device = next(model.parameters()).device
    lengths = torch.tensor([len(one.tokens) for one in prompts], device=device)
    text = models.pad([one.tokens for one in prompts], padding)
    count, size, nodes = len(prompts), text.shape[1], len(trie.tokens)
    parents = torch.tensor(trie.parents)
    path = torch.eye(nodes, dtype=torch.bool)
    for node, parent in enumerate(trie.parents):
        if parent >= 0:
            path[node] |= path[parent]
    # Tokens of the prompt attend to those before them; nodes to the prompt and to their path.
    places = torch.arange(size, device=device)
    allowed = torch.zeros(count, 1, size + nodes, size + nodes, dtype=torch.bool, device=device)
    allowed[:, :, :size, :size] = places <= places[:, None]
    allowed[:, 0, size:, :size] = (places < lengths[:, None])[:, None, :]
    allowed[:, :, size:, size:] = path.to(device)
    depths = torch.tensor(trie.depths, device=device)
    positions = torch.cat([places.expand(count, size), lengths[:, None] + depths], dim=1)
    tokens = torch.cat([text, torch.tensor(trie.tokens).expand(count, nodes)], dim=1)
    with models.autocast(device.type):
        hidden = layers(
            input_ids=tokens.to(device),
            attention_mask=allowed,
            position_ids=positions,
            use_cache=False,
        ).last_hidden_state
        # Row 0 is the last token of the prompt, row 1 + n is node n.
        last = hidden[torch.arange(count, device=device), lengths - 1]
        states = torch.cat([last[:, None], hidden[:, size:]], dim=1)
        inner, place = torch.unique(parents + 1, return_inverse=True)
        logits = torch.log_softmax(head(states[:, inner.to(device)]).float(), dim=-1)
    own = logits[:, place.to(device), torch.tensor(trie.tokens, device=device)].double()
    return own @ path[torch.tensor(trie.ends)].double().T.to(device)


def read_prompts(
    arms: Path,
    tokenizer: Any,
    operations: Sequence[str] | None = None,
    tasks: Collection[str] | None = None,
) -> list[Prompt]:
    """Return the prompts of the arms; of some operations or tasks alone, if they are named."""
    import pyarrow.parquet as pq

    return [
        Prompt(
            row["prompt_id"],
            row["family"],
            any(place["arm"] != "none" for place in row["places"]),
            models.encode_prompt(tokenizer, row["prompt"]),
        )
        for row in pq.read_table(arms).to_pylist()
        if (operations is None or row["operation"] in operations)
        and (tasks is None or any(place["task_id"] in tasks for place in row["places"]))
    ]


def read_surface(file: Path, figure: str) -> dict[tuple[str, str], Any]:
    """Return a figure of each task and setting, such as speedup, which may be None."""
    import pyarrow.parquet as pq

    columns = pq.read_table(file, columns=["task_id", "setting", figure]).to_pydict()
    places = zip(columns["task_id"], columns["setting"], strict=True)
    return dict(zip(places, columns[figure], strict=True))


def read_gate_rows(rows: Path) -> list[tuple[dict[str, Any], str]]:
    """Return training rows whose scores differ enough, each with its family."""
    import pyarrow.parquet as pq

    return [
        (row, _find_family(row["completion"][0]["content"]))
        for row in pq.read_table(rows).to_pylist()
        if row["form"] == "right"
        and max(row["right_scores"]) >= GATE_RATIO * min(row["right_scores"])
    ]


def read_gate_prompts(rows: Path, tokenizer: Any) -> list[Prompt]:
    """Return the prompts of the gate; their ids, which are hashes, choose them."""
    chosen = sorted(read_gate_rows(rows), key=lambda found: found[0]["prompt_id"])[:GATE_ROWS]
    return [
        Prompt(row["prompt_id"], family, True, models.encode_prompt(tokenizer, row["prompt"]))
        for row, family in chosen
    ]


def _find_family(answer: str) -> str:
    """Return the family whose knobs an answer sets."""
    names = set(read_setting(answer.partition("```")[0]))
    return next(family for family, knobs in KNOBS.items() if set(knobs) == names)


def divide_batches(prompts: Sequence[Prompt], size: int) -> list[list[Prompt]]:
    """Return batches of prompts with one trie and similar lengths."""
    groups: dict[tuple[str, bool], list[Prompt]] = {}
    for one in prompts:
        groups.setdefault((one.family, one.shows), []).append(one)
    batches: list[list[Prompt]] = []
    for key in sorted(groups):
        group = sorted(groups[key], key=lambda one: (len(one.tokens), one.prompt_id))
        batches += [group[at : at + size] for at in range(0, len(group), size)]
    return batches


def score(
    model: Any, tokenizer: Any, prompts: Sequence[Prompt], file: Path, batch: int, budget: Budget
) -> bool:
    """Write the probabilities of all prompts; return whether all are done."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.exists():
        say(f"{file} is there already")
        return True
    parts = file.with_suffix("")
    parts.mkdir(parents=True, exist_ok=True)
    batches = divide_batches(prompts, batch)
    chunks = [
        batches[at : at + _BATCHES_PER_PART] for at in range(0, len(batches), _BATCHES_PER_PART)
    ]
    tries = {
        key: build_trie(key[0], shows=key[1], tokenizer=tokenizer)
        for key in {(one.family, one.shows) for one in prompts}
    }
    left = [place for place in range(len(chunks)) if not (parts / f"{place:05}.parquet").exists()]
    device = next(model.parameters()).device.type
    tokens = sum(len(one.tokens) + len(tries[one.family, one.shows].tokens) for one in prompts)
    chunk_s = models.guess_seconds(model, tokens / len(chunks), device, trains=False)
    budget.announce(
        f"{file.stem}, parts of {_BATCHES_PER_PART * batch} prompts", len(left), chunk_s
    )
    model.eval()
    for done, place in enumerate(left):
        if budget.left < _RESERVE_S:
            say(f"stopped with {len(left) - done} parts left; the same command goes on")
            return False
        rows = list(_score_chunk(model, chunks[place], tries, tokenizer.pad_token_id))
        partial = parts / f"{place:05}.partial"
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), partial)
        partial.replace(parts / f"{place:05}.parquet")
        if done in (0, 3) or done % 20 == 19:
            budget.report(f"{file.stem}, parts", done + 1, len(left))
    table = pq.read_table(sorted(parts.glob("*.parquet")))
    partial = file.with_suffix(".partial")
    pq.write_table(table, partial, compression="zstd")
    partial.replace(file)
    for part in parts.glob("*.parquet"):
        part.unlink()
    parts.rmdir()
    say(f"{table.num_rows} probabilities → {file}")
    return True


def _score_chunk(
    model: Any,
    chunk: Sequence[Sequence[Prompt]],
    tries: dict[tuple[str, bool], Trie],
    padding: int,
) -> Iterator[dict[str, Any]]:
    import torch

    for batch in chunk:
        trie = tries[batch[0].family, batch[0].shows]
        with torch.inference_mode():
            chances = score_batch(model, batch, trie, padding).exp().tolist()
        for one, row in zip(batch, chances, strict=True):
            for (named, setting), chance in zip(trie.heads, row, strict=True):
                if chance >= LEAST:
                    yield {
                        "prompt_id": one.prompt_id,
                        "named": named,
                        "setting": setting,
                        "probability": chance,
                    }


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("prompt_id", pa.string()),
            ("named", pa.int8()),
            ("setting", pa.dictionary(pa.int16(), pa.string())),
            ("probability", pa.float32()),
        ]
    )


def main() -> None:
    """Score the gate's prompts, then those of the arms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arms", type=Path)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--model", required=True, help="folder of a trained model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True, help="seed of the training")
    parser.add_argument("--operations", nargs="+", help="only tasks of these (default: all)")
    parser.add_argument(
        "--unseen",
        type=int,
        choices=range(THIRDS),
        help="only tasks of this third of the shapes, which the training left out",
    )
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget-s", type=float, required=True)
    given = parser.parse_args()
    budget = Budget(given.budget_s)
    model, tokenizer = models.load(given.model, given.out, given.device)
    prompts = {
        "gate": read_gate_prompts(given.rows, tokenizer),
        "prompts": read_prompts(
            given.arms,
            tokenizer,
            given.operations,
            None if given.unseen is None else list_third(given.unseen),
        ),
    }
    for name, wanted in prompts.items():
        file = given.out / f"{name}-{given.seed}.parquet"
        if not score(model, tokenizer, wanted, file, given.batch, budget):
            return
    say(f"scored in {budget.spent:.0f} s")


if __name__ == "__main__":
    main()
