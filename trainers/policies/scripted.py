"""A policy that answers from a file, for tests and for trying the loop without a model.

Each line is {"text": …} with optional `contains` (only for prompts whose last turn contains this
text), `finish_reason`, `completion_tokens` and `error`. The lines that match a prompt are used in
turn, repeatedly.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines import Message
from store.errors import FlywheelError, UnknownName
from store.ids import content_id
from trainers.policies.interface import FAILED, Completion, Sampling


class Scripted:
    """Answers of a file, in order."""

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise UnknownName(f"no file {file}", "scripted:FILE.jsonl names a file of answers.")
        self._lines: list[dict[str, Any]] = []
        for number, text in enumerate(file.read_text("utf-8").splitlines(), start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
            except ValueError as error:
                raise FlywheelError(f"{file}: line {number} is no JSON: {error}") from error
            if not isinstance(line, dict) or not isinstance(line.get("text"), str):
                raise FlywheelError(f'{file}: line {number} has no "text"')
            self._lines.append(line)
        self._row = {
            "policy_id": content_id("scripted", hashlib.sha256(file.read_bytes()).hexdigest()),
            "name": file.stem,
            "kind": "script",
            "model": file.name,
        }
        self._turns: dict[str, Iterator[dict[str, Any]]] = {}

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`; the file's bytes are its identity."""
        return self._row

    def sample(
        self,
        prompts: Sequence[list[Message]],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield the next n answers of each prompt.

        Raises:
            FlywheelError: no line fits a prompt.
        """
        for index, messages in enumerate(prompts):
            shown = messages[-1]["content"]
            if shown not in self._turns:
                fitting = [one for one in self._lines if one.get("contains", "") in shown]
                if not fitting:
                    raise FlywheelError(
                        f"{self._row['model']} has no answer to the prompt {shown[:60]!r}",
                        'A line without "contains" fits every prompt.',
                    )
                self._turns[shown] = itertools.cycle(fitting)
            words = sum(len(turn["content"].split()) for turn in messages)
            yield (
                index,
                [
                    Completion(
                        text=line["text"],
                        finish_reason=FAILED
                        if line.get("error")
                        else line.get("finish_reason", "stop"),
                        prompt_tokens=words,
                        completion_tokens=line.get("completion_tokens", len(line["text"].split())),
                        error=line.get("error"),
                    )
                    for line in itertools.islice(self._turns[shown], n)
                ],
            )

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
