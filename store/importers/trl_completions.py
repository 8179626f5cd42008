"""Completions that TRL logged: completions_00001.parquet … of a GRPO or RLOO run.

Reads the columns step, prompt, completion (texts or messages), one for each reward function, and
advantage. Completions are parsed for kernels. Rewards become rows of a rule with the name of their
column, version 0, because the files do not state the code that computed them. The task of a row is
its column task_id, the task of its prompt if the lake has it, or the task that --task names. Rows
without a task are left out and counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import store
from store import ids
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign.text_files import read_figure
from store.importers.reading import pieces, sources

log = logging.getLogger(__name__)

NAME = "trl-completions"
BUNDLE_ROWS = 5_000
_NEEDED = ("step", "prompt", "completion")
_NO_REWARDS = {"advantage", "task_id", "completion_id", "finish_reason"}


@dataclass(frozen=True, kw_only=True)
class Config(pieces.TaskOrigin):
    policy: AuthorOption | None = None
    """Who wrote the completions (default: the name of the run's folder)."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "step", "prompt", "completion")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per file."""
    root = sources.require_path(path, "completions_*.parquet of a TRL run, or the folder of them")
    files = sources.find_parquet(root)
    folder = root if root.is_dir() else root.parent
    if folder.resolve().name == "completions":
        folder = folder.resolve().parent
    policy = config.policy or folder.resolve().name
    groups: Counter[str] = Counter()
    read_rows = missing = 0
    reading = pieces.Import(lake, NAME, config)
    known = {str(row["task_id"]) for row in lake.run("SELECT task_id FROM tasks").rows()}
    task_of = {
        str(row["prompt_id"]): str(row["task_id"])
        for row in lake.run(
            "SELECT prompt_id, task_id FROM prompts WHERE task_id IS NOT NULL "
            "UNION SELECT prompt_id, task_id FROM dataset_rows WHERE prompt_id IS NOT NULL"
        ).rows()
    }
    is_any_kept = False
    for file in files:
        rows = reading.start(f"{policy} {file.name} {pieces.hash_file(file)}")
        if rows.is_new:
            rows.add_policy(policy, "model")
            names = sources.column_names(file)
            wanted = dict.fromkeys(names, False) | dict.fromkeys(_NEEDED, True)
            batches = sources.read_batches(file, wanted, BUNDLE_ROWS)
            for row in (row for batch in batches for row in batch):
                place = f"{file.name}, row {read_rows}"
                read_rows += 1
                messages, task_id = pieces.read_messages(row["prompt"], place), row.get("task_id")
                prompt_id = ids.prompt_id(messages)
                if not isinstance(task_id, str) or task_id not in known:
                    task_id = task_of.get(prompt_id, reading.task_id)
                if task_id is None:
                    missing += 1
                    continue
                # A completion is a text, or messages; those of the assistant count.
                stated = row["completion"]
                turns = cast("list[Any]", stated if isinstance(stated, list) else [stated])
                if not isinstance(stated, str | list) or not all(
                    isinstance(turn, str | dict) for turn in turns
                ):
                    kind = type(stated).__name__
                    raise ImportFailed(f"{place}: completion is {kind}, no text and no messages")
                text = "\n".join(
                    pieces.read_content(turn if isinstance(turn, str) else turn.get("content"))
                    for turn in turns
                    if isinstance(turn, str) or turn.get("role") == "assistant"
                )
                finish_reason = str(row.get("finish_reason") or "stop")
                kernel_id, parsed = rows.parse_completion(text, finish_reason)
                try:
                    step = int(row["step"])
                except (TypeError, ValueError, OverflowError):
                    said = f"{row['step']!a:.40}"
                    raise ImportFailed(f"{place}: step is {said}, no number") from None
                group_id = ids.content_id("group", NAME, policy, str(step), prompt_id)
                index = groups[group_id]
                groups[group_id] += 1
                attempt = rows.add_attempt(
                    [group_id, str(index), text],
                    policy=policy,
                    task_id=task_id,
                    kernel_id=kernel_id,
                    prompt_id=rows.add_prompt(messages, task_id, "train"),
                    group_id=group_id,
                    sample_index=index,
                    **parsed,
                )
                for name, value in row.items():
                    raw = read_figure(value)
                    if name in _NEEDED or name in _NO_REWARDS or raw is None:
                        continue
                    reward = {
                        "run_id": rows.run_id,
                        "generation_id": attempt.generation_id,
                        "rule": name,
                        "rule_version": 0,
                        "step": step,
                        "raw": raw,
                        "advantage": read_figure(row.get("advantage")),
                    }
                    rows.add("rewards", (attempt.generation_id, name), reward)
        bundle = reading.finish(rows, f"{NAME} {policy}: {file.name}", file.name)
        is_any_kept |= not bundle.tables or "generations" in bundle.tables
        yield bundle
    if not is_any_kept:
        raise ImportFailed(
            f"none of {read_rows} completions is of a task that the lake has",
            "Import the tasks first, or name the one that they are of with --task.",
        )
    if missing:
        log.warning("%d of %d completions have no known task", missing, read_rows)
