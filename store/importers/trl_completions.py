"""Completions that TRL logged: completions_00001.parquet … of a GRPO or RLOO run.

Reads the columns step, prompt, completion (texts or messages), one for each reward function, and
advantage. Completions are parsed for kernels, and messages for tool calls that write one; several
messages become a session. Rewards are stored under a rule with the name of their column and version
0, because the files do not contain the code that computed them. Unless --rewards names the rewards,
columns of whole numbers and columns whose name ends in a unit or a measure, such as kernel_ms,
become claims. The task of a row is its column task_id, the task of its prompt if the lake has it,
or the task that --task names. Rows without a task are left out.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import store
from store import ids
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign import left_out
from store.foreign.text_files import Fields, read_figure
from store.importers.reading import pieces, sources
from store.importers.reading.sessions import (
    SessionRows,
    find_kernel,
    name_metric,
    read_calls,
    read_turns,
)

log = logging.getLogger(__name__)

NAME = "trl-completions"
_NO_TASK = "the lake has no task with their prompt or task_id; --task names one"
_NEEDED = ("step", "prompt", "completion")
_NO_FIGURES = {*_NEEDED, "advantage", "task_id", "completion_id", "finish_reason"}
_MEASURE = re.compile(
    r"(?:^|_)(?:[mun]?s|seconds|time|latency|runtime|[kmg]?b|bytes|flops|tokens?|len(?:gth)?|chars|"
    r"count|n|num|id|index|idx|seed|temperature|entropy|kl|logprobs?|loss|images?)$|^(?:n|num)_",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.TaskOrigin):
    policy: AuthorOption | None = None
    """Who wrote the completions (default: the name of the run's folder)."""
    rewards: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = ()
    """Columns that are rewards."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "step", "prompt", "completion")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per file."""
    what = "completions_*.parquet of a TRL run, or the folder of them"
    root, files = sources.find_parquet(path, what)
    folder = root if root.is_dir() else root.parent
    if folder.resolve().name == "completions":
        folder = folder.resolve().parent
    policy = config.policy or folder.resolve().name
    groups: Counter[str] = Counter()
    unread: dict[str, str] = {}
    """Columns that have other values than numbers, and what these are."""
    reading = pieces.Import(lake, NAME, config)
    known = {str(row["task_id"]) for row in lake.run("SELECT task_id FROM tasks").rows()}
    task_of = {
        str(row["prompt_id"]): str(row["task_id"])
        for row in lake.run(
            "SELECT prompt_id, task_id FROM prompts WHERE task_id IS NOT NULL "
            "UNION SELECT prompt_id, task_id FROM dataset_rows WHERE prompt_id IS NOT NULL"
        ).rows()
    }
    sessions = SessionRows(NAME)

    def add(rows: pieces.BundleRows, row: Fields) -> None:
        messages = pieces.read_messages(row.values.get("prompt"), row.where)
        prompt_id, task_id = ids.prompt_id(messages), row.values.get("task_id")
        if not isinstance(task_id, str) or task_id not in known:
            task_id = task_of.get(prompt_id, reading.task_id)
        if task_id is None:
            left_out.get_record().count(_NO_TASK)
            return
        step, turns = row.require_whole("step"), read_turns(row, "completion")
        finish_reason = row.text("finish_reason") or "stop"
        calls = [read_calls(turn) for turn in turns]
        contents = [pieces.read_content(turn.values.get("content")) for turn in turns]
        roles = [turn.text("role") or "assistant" for turn in turns]
        # A completion is what the assistant wrote; answers of tools are part of its session.
        text = "\n".join(
            content
            for role, content in zip(roles, contents, strict=True)
            if role == "assistant" and content
        )
        group_id = ids.content_id("group", NAME, policy, str(step), prompt_id)
        index = groups[group_id]
        groups[group_id] += 1
        kernel_id, parsed = rows.parse_completion(text, finish_reason)
        if kernel_id is None and (found := find_kernel(calls)) is not None:
            kernel_id, parsed["parse_error"] = (
                rows.add_code(found, path=pieces.find_path(found)),
                None,
            )
        session_id = None
        if len(turns) > 1 or any(calls):
            about = {"name": f"{policy} {group_id} {index}", "model": policy, "harness": "TRL"}
            session_id = sessions.identify(about["name"])
            for number, content in enumerate(contents):
                values = {"session": about, "step": number, "role": roles[number], "given": True}
                values |= {"content": content, "calls": calls[number]}
                sessions.add(rows, Fields(values=values, where=row.where))
        attempt = rows.add_attempt(
            [group_id, str(index), text],
            policy=policy,
            task_id=task_id,
            kernel_id=kernel_id,
            prompt_id=rows.add_prompt(messages, task_id, "train"),
            group_id=group_id,
            sample_index=index,
            trajectory_id=session_id,
            **parsed,
        )
        for name, value in row.values.items():
            raw = read_figure(float(value) if isinstance(value, bool) else value)
            if name in _NO_FIGURES or raw is None:
                if name not in _NO_FIGURES and not isinstance(value, float | Decimal | None):
                    unread[name] = type(value).__name__
                continue
            if not _is_reward(name, value, config.rewards):
                rows.add_claim(attempt, name_metric("reported", name), raw, row.where)
                continue
            advantage = read_figure(row.values.get("advantage"))
            rows.add_reward(attempt.generation_id, name, raw, step=step, advantage=advantage)

    is_any_kept = False
    for file in files:
        rows = reading.start(f"{policy} {file.name} {pieces.hash_file(file)}")
        if rows.is_new:
            with left_out.errors():
                wanted = dict.fromkeys(sources.column_names(file), False)
                opened = pieces.open_parquet(file, root, wanted | dict.fromkeys(_NEEDED, True))
                pieces.add_records(add, rows, opened.open())
            if "generations" not in rows.tables:
                continue
        is_any_kept = True
        yield reading.finish(rows, f"{NAME} {policy}: {file.name}", file.name)
    if unread:
        listed = ", ".join(f"{name} ({kind})" for name, kind in unread.items())
        log.warning("columns that are no numbers are not read: %s", listed)
    if not is_any_kept and _NO_TASK in left_out.get_record().reasons:
        raise ImportFailed(
            "none of the completions is of a task that the lake has",
            "Import the tasks first, or name the one that they are of with --task.",
        )


def _is_reward(name: str, value: Any, named: tuple[str, ...]) -> bool:
    """Return whether a number is a reward: TRL writes rewards as floats, in any column."""
    if named:
        return name in named
    if re.search("reward|score", name, re.IGNORECASE):
        return True
    return isinstance(value, float | Decimal | bool) and _MEASURE.search(name) is None
