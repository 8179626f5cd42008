"""Builds the rows of attempts: of imported ones, and of rollouts that a framework logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self, cast

from store import ids
from store.code import completion as completions
from store.code.completion import ENTRY_PATH
from store.ids import content_id

_CALL_PARTS = ("tool_use", "tool_call")
"""Parts of a message that are calls, not text."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt: everything that its verdict and its figures refer to."""

    place: tuple[str | None, ...] = ()
    """What distinguishes it in its source; part of every id."""
    generation_id: str = ""
    policy: str
    task_id: str | None = None
    problem: str | None = None
    kernel_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptRows:
    """Collects rows of attempts with what they refer to, each key once."""

    source: str
    """Importer, repository or program that the rows come from."""
    source_revision: str | None = None
    """Its revision."""
    license: str | None
    """SPDX identifier that the source states."""
    namespace: str = ""
    """Name from which the ids of attempts and figures follow."""
    run_id: str = ""
    """Id of their run; empty while a file is only checked."""
    tables: dict[str, dict[tuple[str, ...], dict[str, Any]]] = field(
        default_factory=dict[str, dict[tuple[str, ...], dict[str, Any]]]
    )

    def add(self, table: str, key: tuple[str, ...], row: dict[str, Any]) -> bool:
        """Add a row unless its key is there already; return whether it was added."""
        rows = self.tables.setdefault(table, {})
        if key in rows:
            return False
        rows[key] = row
        return True

    def shrink(self, sizes: Mapping[str, int]) -> None:
        """Remove what was added since the tables had these sizes."""
        for table, rows in self.tables.items():
            while len(rows) > sizes.get(table, 0):
                rows.popitem()

    def under(self, license: str | None) -> Self:
        """Return a builder of rows under another license, for the same bundle."""
        return replace(self, license=license)

    def origin(self, source: str | None = None) -> dict[str, str | None]:
        """Return the columns that state where a row comes from."""
        return {
            "source": source or self.source,
            "source_revision": self.source_revision,
            "license": self.license,
        }

    def list_tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows by table."""
        return {table: list(rows.values()) for table, rows in self.tables.items() if rows}

    def identify(self, place: Iterable[str | None]) -> str:
        """Return the id of the attempt at a place of the source."""
        return content_id("generation", self.namespace, *place)

    def add_policy(self, name: str, kind: str, **columns: Any) -> str:
        """Add a policy with its name as id, and return the id."""
        self.add("policies", (name,), {"policy_id": name, "name": name, "kind": kind, **columns})
        return name

    def add_kernel(
        self,
        files: Mapping[str, str],
        *,
        source: str | None = None,
        entry_path: str = ENTRY_PATH,
        entry_point: str = "ModelNew",
    ) -> str:
        """Add a kernel, given as path to text, and return its id."""
        kernel_id = ids.kernel_id(files, entry_path, entry_point)
        others = [
            {"path": path, "code": text}
            for path, text in sorted(files.items())
            if path != entry_path
        ]
        row = {
            "kernel_id": kernel_id,
            "code": files[entry_path],
            "path": entry_path,
            "entry_point": entry_point,
            "other_files": others or None,
            **self.origin(source),
        }
        self.add("kernels", (kernel_id,), row)
        return kernel_id

    def add_code(
        self, code: str | None, *, path: str = ENTRY_PATH, entry_point: str = "ModelNew"
    ) -> str | None:
        """Add a kernel of one file and return its id, or None if there is no code."""
        if code is None:
            return None
        return self.add_kernel({path: code}, entry_path=path, entry_point=entry_point)

    def parse_completion(
        self, completion: str, finish_reason: str = "stop"
    ) -> tuple[str | None, dict[str, Any]]:
        """Add the kernel that a completion has; return its id, and the columns of its attempt."""
        parsed = completions.parse_completion(completion, finish_reason)
        kernel_id = None
        if parsed.code is not None:
            files = {parsed.path: parsed.code, **dict(parsed.other_files)}
            kernel_id = self.add_kernel(
                files, entry_path=parsed.path, entry_point=parsed.entry_point
            )
        return kernel_id, {
            "completion": completion,
            "parse_error": parsed.parse_error,
            "analysis": parsed.analysis,
            "design": parsed.design,
        }

    def add_prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        task_id: str | None,
        purpose: str = "eval",
        **columns: Any,
    ) -> str | None:
        """Add a prompt and return its id, or None if it has no messages."""
        if not messages:
            return None
        prompt_id = ids.prompt_id(messages)
        row = {
            "prompt_id": prompt_id,
            "messages": ids.messages_json(messages),
            "task_id": task_id,
            "purpose": purpose,
            **columns,
        }
        self.add("prompts", (prompt_id,), row)
        return prompt_id

    def add_attempt(
        self,
        place: Sequence[str | None],
        *,
        policy: str,
        policy_kind: str = "model",
        task_id: str | None = None,
        problem: str | None = None,
        kernel_id: str | None = None,
        generation_id: str | None = None,
        **columns: Any,
    ) -> Attempt:
        """Add an attempt; `columns` are further columns of the table generations."""
        self.add_policy(policy, policy_kind)
        generation_id = generation_id or self.identify(place)
        row = {
            "generation_id": generation_id,
            "run_id": self.run_id,
            "task_id": task_id,
            "problem": problem,
            "policy_id": policy,
            "kernel_id": kernel_id,
            **self.origin(),
            "created_at": datetime.now(UTC),
            **select_stated(columns),
        }
        self.add("generations", (generation_id,), row)
        return Attempt(
            place=tuple(place),
            generation_id=generation_id,
            policy=policy,
            task_id=task_id,
            problem=problem,
            kernel_id=kernel_id,
        )

    def add_reward(
        self,
        generation_id: str,
        rule: str,
        raw: float,
        *,
        step: int | None,
        advantage: float | None = None,
    ) -> None:
        """Add a reward of a rule whose code is unknown, which is its version 0."""
        row = {
            "run_id": self.run_id,
            "generation_id": generation_id,
            "rule": rule,
            "rule_version": 0,
            "step": step,
            "raw": raw,
            "advantage": advantage,
        }
        self.add("rewards", (generation_id, rule), row)


def read_content(content: Any) -> str | None:
    """Return the text of a message's content: a text, or a list of parts."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content, default=str)
    parts: list[str] = []
    for part in cast("list[Any]", content):
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            text = cast("dict[str, Any]", part).get("text")
            kind = str(cast("dict[str, Any]", part).get("type"))
            if kind not in _CALL_PARTS:
                parts.append(text if isinstance(text, str) else f"[{kind[:40]}]")
    return "\n".join(parts)


def select_stated(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that are not NULL."""
    return {name: value for name, value in columns.items() if value is not None}
