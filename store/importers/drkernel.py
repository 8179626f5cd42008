"""Dr.Kernel (hkust-nlp): prompts for reinforcement learning, and multi-turn cold-start dialogues.

Reads drkernel-rl-data and drkernel-validation-data (prompt, reward_model with the reference as
ground_truth, extra_info with uuid, entry_point and module_name), and drkernel-coldstart-8k
(messages of five turns, original_python_code, final_speedup, best_round, uuid), as their cards of
2026 describe them. A reference becomes a task, its prompt a prompt for training, and each answer of
a dialogue an attempt that continues the one before it. The final speedup of a dialogue becomes a
claim on the kernel of its best round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import store
from store.foreign.text_files import Fields
from store.importers.kernelbook import adapt_task
from store.importers.reading import pieces, sources

NAME = "drkernel"
POLICY = "drkernel-coldstart"
PROMPTS = {"prompt": True, "reward_model": True, "extra_info": True, "data_source": False}
DIALOGUES = pieces.name_columns(
    required="messages uuid original_python_code",
    optional="final_speedup num_rounds best_round timestamp",
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str = "unknown"
    license: str | None = "MIT"
    purpose: Literal["train", "eval"] = "train"
    """Purpose of the prompts; use eval for drkernel-validation-data."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "messages", "original_python_code") or (
        sources.find_columns(path, "reward_model", "extra_info", "prompt")
    )


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of each file in bundles."""
    what = "a Parquet file of drkernel-rl-data or drkernel-coldstart-8k"
    root, files = sources.find_parquet(path, what)
    for file in files:
        is_dialogue = "messages" in sources.column_names(file)
        columns = DIALOGUES if is_dialogue else PROMPTS
        source = f"hkust-nlp/drkernel-{'coldstart-8k' if is_dialogue else 'rl-data'}"
        add = partial(_add_dialogue if is_dialogue else _add_prompt, config)
        yield from pieces.Import(lake, NAME, config, source=source).read(
            [pieces.open_parquet(file, root, columns)], lambda add=add: add
        )


def _add_prompt(config: Config, rows: pieces.BundleRows, row: Fields) -> None:
    about = row.inner("extra_info")
    code = row.inner("reward_model").code("ground_truth")
    entry_point = about.text("entry_point") or "Model"
    if code is not None and entry_point != "Model":
        code = adapt_task(code, entry_point)
    uuid = about.text("uuid") or row.where
    task_id = rows.add_suite_task(
        code,
        suite=NAME,
        revision=config.source_revision,
        name=uuid,
        title=about.text("module_name") or uuid,
        level=about.whole("level"),
    )
    rows.add_prompt(
        pieces.read_messages(row.values.get("prompt") or [], row.where), task_id, config.purpose
    )


def _add_dialogue(config: Config, rows: pieces.BundleRows, row: Fields) -> None:
    """Add the attempts of a dialogue, each with the messages before it as its prompt."""
    uuid = f"coldstart-{row.require_whole('uuid')}"
    task_id = rows.add_suite_task(
        row.code("original_python_code"), suite=NAME, revision=config.source_revision, name=uuid
    )
    messages = pieces.read_messages(row.values.get("messages") or [], row.where)
    attempts: list[pieces.Attempt] = []
    for at, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        kernel_id, parsed = rows.parse_completion(message["content"])
        attempts.append(
            rows.add_attempt(
                [uuid, str(len(attempts))],
                policy=POLICY,
                policy_kind="released",
                task_id=task_id,
                problem=uuid,
                kernel_id=kernel_id,
                prompt_id=rows.add_prompt(messages[:at], task_id, config.purpose),
                trajectory_id=rows.identify([uuid]),
                turn=len(attempts),
                parent_generation_id=attempts[-1].generation_id if attempts else None,
                created_at=row.moment("timestamp"),
                **parsed,
            )
        )
    best, speedup = row.whole("best_round"), row.positive("final_speedup")
    if best is not None and 1 <= best <= len(attempts):
        quote = f"final_speedup of {uuid}, best round {best}"
        rows.add_claim(attempts[best - 1], "speedup", speedup, quote, baseline="eager")
