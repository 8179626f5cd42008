"""Completions that TRL logged: completions_00001.parquet … of a GRPO or RLOO run.

Reads the columns step, prompt, completion (texts or messages), one for each reward function, and
advantage. Completions are parsed for kernels. Rewards become rows of a rule with the name of their
column, version 0, because the files do not state the code that computed them. The task of a row is
its column task_id, the task of its prompt if the lake has it, or the task that --task names. Rows
without a task are left out and counted.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from store import ids
from store.code.completion import parse_completion
from store.errors import ImportFailed
from store.importers.reading import detection, parquet, sources
from store.importers.reading.rows import BundleRows
from store.importers.reading.tasks import find_optional
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

log = logging.getLogger(__name__)

NAME = "trl-completions"
IMPORTER_VERSION = 1
BUNDLE_ROWS = 5_000
_NEEDED = ("step", "prompt", "completion")
_NO_REWARDS = {"advantage", "task_id", "completion_id", "finish_reason"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the trl-completions importer."""

    policy: str | None = None
    """Name of the policy that wrote the completions (default: the name of the run's folder)."""
    task: str | None = None
    """Task of the rows that state none: its name, or the first 6 characters of its id."""
    source_revision: str | None = None
    """Revision of the run."""
    license: str | None = None
    """SPDX identifier under which the completions were released."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path has completions that TRL logged."""
    return detection.find_columns(path, "step", "prompt", "completion")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield one bundle per file.

    Raises ImportFailed if a file is not a log of completions, or no row has a known task.
    """
    root = sources.require_path(path, "completions_*.parquet of a TRL run, or the folder of them")
    files = parquet.find(root)
    folder = root if root.is_dir() else root.parent
    if folder.resolve().name == "completions":
        folder = folder.resolve().parent
    policy = config.policy or folder.resolve().name
    tasks = _Tasks(lake, config.task)
    group = _Groups()
    read_rows = kept = 0
    for file in files:
        identity = sources.bundle_id(
            NAME, IMPORTER_VERSION, f"{policy} {file.name} {parquet.digest(file)}", config
        )
        message = f"{NAME} {policy}: {file.name}"
        if sources.is_stored(lake, identity):
            kept += 1
            yield Bundle(bundle_id=identity, message=message)
            continue
        gathered = BundleRows(
            source=NAME, source_revision=config.source_revision, license=config.license
        )
        gathered.add_policy(policy, "model")
        names = parquet.column_names(file)
        wanted = dict.fromkeys(names, False) | dict.fromkeys(_NEEDED, True)
        for rows in parquet.read_batches(file, wanted, BUNDLE_ROWS):
            for row in rows:
                read_rows += 1
                place = f"{file.name}, row {read_rows - 1}"
                messages = _messages(row["prompt"], place)
                task_id = tasks.find(row.get("task_id"), messages)
                if task_id is not None:
                    kept += 1
                    _add(gathered, row, messages, task_id, policy, identity, place, group)
        yield gathered.make_bundle(identity, message, importer=NAME, config=config, what=file.name)
    if not kept:
        raise ImportFailed(
            f"none of {read_rows} completions is of a task that the lake has",
            "Import the tasks first, or name the one that they are of with --task.",
        )
    if tasks.missing:
        log.warning("%d of %d completions have no known task", tasks.missing, read_rows)


class _Tasks:
    """Finds the task of a row."""

    def __init__(self, lake: store.Lake, named: str | None) -> None:
        self.missing = 0
        self._known = {str(row["task_id"]) for row in lake.run("SELECT task_id FROM tasks").rows()}
        self._prompts = {
            str(row["prompt_id"]): str(row["task_id"])
            for row in lake.run(
                "SELECT prompt_id, task_id FROM prompts WHERE task_id IS NOT NULL "
                "UNION SELECT prompt_id, task_id FROM dataset_rows WHERE prompt_id IS NOT NULL"
            ).rows()
        }
        self._default = find_optional(lake, named)

    def find(self, said: object, messages: list[dict[str, str]]) -> str | None:
        """Return the id of a row's task, or None if it is unknown."""
        if isinstance(said, str) and said in self._known:
            return said
        found = self._prompts.get(ids.prompt_id(messages), self._default)
        self.missing += found is None
        return found


class _Groups:
    """Numbers completions of one step and prompt."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def place(self, group_id: str) -> int:
        """Return the place of the next completion in its group."""
        self._counts[group_id] = self._counts.get(group_id, -1) + 1
        return self._counts[group_id]


def _add(
    gathered: BundleRows,
    row: Mapping[str, Any],
    messages: list[dict[str, str]],
    task_id: str,
    policy: str,
    run_id: str,
    place: str,
    groups: _Groups,
) -> None:
    text = _text(row["completion"], place)
    parsed = parse_completion(text, str(row.get("finish_reason") or "stop"))
    kernel_id = None
    if parsed.code is not None:
        files = {parsed.path: parsed.code, **dict(parsed.other_files)}
        kernel_id = gathered.add_kernel(
            files, entry_path=parsed.path, entry_point=parsed.entry_point
        )
    prompt_id = ids.prompt_id(messages)
    prompt = {
        "prompt_id": prompt_id,
        "messages": ids.messages_json(messages),
        "task_id": task_id,
        "purpose": "train",
    }
    gathered.add("prompts", (prompt_id,), prompt)
    step = _step(row["step"], place)
    group_id = ids.content_id("group", NAME, policy, str(step), prompt_id)
    index = groups.place(group_id)
    generation_id = ids.content_id("generation", NAME, group_id, str(index), text)
    gathered.add(
        "generations",
        (generation_id,),
        {
            "generation_id": generation_id,
            "run_id": run_id,
            "task_id": task_id,
            "policy_id": policy,
            "kernel_id": kernel_id,
            "prompt_id": prompt_id,
            "group_id": group_id,
            "sample_index": index,
            "completion": text,
            "parse_error": parsed.parse_error,
            "analysis": parsed.analysis,
            "design": parsed.design,
            **gathered.origin(),
        },
    )
    advantage = _figure(row.get("advantage"))
    for name, value in row.items():
        raw = _figure(value)
        if name in _NEEDED or name in _NO_REWARDS or raw is None:
            continue
        gathered.add(
            "rewards",
            (generation_id, name),
            {
                "run_id": run_id,
                "generation_id": generation_id,
                "rule": name,
                "rule_version": 0,
                "step": step,
                "raw": raw,
                "advantage": advantage,
            },
        )


def _messages(value: Any, place: str) -> list[dict[str, str]]:
    """Return a prompt as messages; a plain text becomes a message of the user."""
    if isinstance(value, str):
        return [{"role": "user", "content": _clean(value)}]
    if isinstance(value, list):
        turns = cast("list[Any]", value)
        if all(isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in turns):
            return [
                {"role": _clean(turn["role"]), "content": _content(turn.get("content"))}
                for turn in turns
            ]
    raise ImportFailed(f"{place}: prompt is {type(value).__name__}, no text and no messages")


def _text(value: Any, place: str) -> str:
    """Return a completion as text: the content of the assistant's messages."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        turns = cast("list[Any]", value)
        if all(isinstance(turn, dict) for turn in turns):
            return "\n".join(
                _content(turn.get("content")) for turn in turns if turn.get("role") == "assistant"
            )
    raise ImportFailed(f"{place}: completion is {type(value).__name__}, no text and no messages")


def _content(value: Any) -> str:
    """Return the text of a message; several parts become JSON."""
    if value is None:
        return ""
    return _clean(value if isinstance(value, str) else json.dumps(value, default=str))


def _clean(text: str) -> str:
    return text.replace("\0", "\ufffd")


def _step(value: Any, place: str) -> int:
    try:
        step = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ImportFailed(f"{place}: step is {value!a:.40}, no number") from None
    return step


def _figure(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
