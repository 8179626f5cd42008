"""Converts prompts and completions to rows, without a lake and without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import store
from pipelines import Message, prompt_id
from store import ParsedCompletion, clean_text, parse_completion
from store.ids import content_id, uuid7
from store.rollouts.attempt_rows import AttemptRows
from trainers.policies.interface import FAILED, Completion, Sampling

SOURCE = "trainers"
_OF_PROMPT = (
    *("task_id", "prompt_id", "exemplar_kernel_ids", "exemplar_scores", "lake_id", "snapshot_id"),
    *("namespace", "step"),
)
_OF_COMPLETION = ("finish_reason", "prompt_tokens", "completion_tokens", "cost_usd")
_OF_ANSWER = ("parse_error", "analysis", "design")
Row: TypeAlias = "dict[str, Any]"
Tables: TypeAlias = "dict[str, list[Row]]"


@dataclass(frozen=True, kw_only=True)
class ShownPrompt:
    """One prompt in the form shown to a policy."""

    task_id: str
    messages: list[Message]
    template_hash: str | None
    purpose: str
    """train or eval."""
    exemplar_kernel_ids: list[str]
    exemplar_scores: list[float]
    """Speedups as the prompt shows them, in its order."""
    lake_id: str
    snapshot_id: int | None
    """Lake and snapshot that the prompt was rendered from; without a snapshot, the lake whose tasks
    and kernels it names."""
    namespace: str | None = None
    """Namespace of the attempts at it."""
    step: int | None = None
    """Training step or search round of the attempts at it."""

    @property
    def prompt_id(self) -> str:
        """The sha256 of the messages."""
        return prompt_id(self.messages)


def make_attempt_rows(
    run_id: str,
    policy_id: str,
    group_id: str,
    asked: ShownPrompt,
    completions: Sequence[Completion],
    sampling: Sampling,
    *,
    first: int = 0,
    repeatable: bool = False,
) -> Tables:
    """Return the rows of completions of one prompt; rows of `generations` keep their order.

    A failed completion is a row with its reason and without a kernel. `first` is the place of the
    first completion in its group. Repeatable ids follow from group, place and text, so that the
    same outcome has the same rows, and another outcome is another attempt; other ids are random.
    """
    rows = AttemptRows(source=SOURCE, license=None, run_id=run_id)
    rows.add_prompt(asked.messages, asked.task_id, asked.purpose, template_hash=asked.template_hash)
    generations: list[Row] = []
    analyses: list[Row] = []
    settings = json.dumps(asdict(sampling))
    for index, completion in enumerate(completions, start=first):
        failed = completion.finish_reason == FAILED
        text = None if failed else format_completion(completion)
        parsed = (
            ParsedCompletion(parse_error=completion.error or "no answer")
            if failed
            else parse_completion(completion.text, completion.finish_reason)
        )
        kernel = None
        if parsed.code is not None:
            files = {parsed.path: parsed.code, **dict(parsed.other_files)}
            kernel = rows.add_kernel(files, entry_path=parsed.path, entry_point=parsed.entry_point)
        generation_id, analysis_id = uuid7(), uuid7()
        if repeatable:
            generation_id = content_id("generation", group_id, str(index), asked.prompt_id, text)
            analysis_id = content_id("analysis", generation_id)
        generations.append(
            {
                "generation_id": generation_id,
                "run_id": run_id,
                "policy_id": policy_id,
                "kernel_id": kernel,
                "group_id": group_id,
                "sample_index": index,
                "trajectory_id": generation_id,
                "turn": 0,
                "sampling": settings,
                "source": SOURCE,
                "completion": text,
                **{name: getattr(asked, name) for name in _OF_PROMPT},
                **{name: getattr(completion, name) for name in _OF_COMPLETION},
                **{name: getattr(parsed, name) for name in _OF_ANSWER},
            }
        )
        if parsed.analysis:
            shown = asked.exemplar_kernel_ids
            place = parsed.fastest
            analyses.append(
                {
                    "analysis_id": analysis_id,
                    # The analysis is about the kernels shown, not about the one that follows it.
                    "kernel_id": None,
                    "generation_id": generation_id,
                    "kind": "model",
                    "author": policy_id,
                    "body": parsed.analysis,
                    "techniques": list(parsed.techniques),
                    "fastest_kernel_id": (
                        shown[place - 1] if place and 1 <= place <= len(shown) else None
                    ),
                }
            )
    kernels = list(rows.tables.get("kernels", {}).values())
    return {
        "prompts": list(rows.tables["prompts"].values()),
        "generations": generations,
        "kernels": kernels,
        "kernel_features": store.extract_row_features(kernels),
        "analyses": analyses,
    }


def format_completion(completion: Completion) -> str:
    """Return the stored form of a completion; separate reasoning comes first."""
    text = clean_text(completion.text)
    if not completion.reasoning:
        return text
    return f"<think>\n{clean_text(completion.reasoning)}\n</think>\n\n{text}"
