"""Converts prompts and completions to rows, without a lake and without a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from pipelines import Message, messages_json, prompt_id
from store import ParsedCompletion, clean_text, parse_completion
from store.ids import kernel_id, uuid7
from trainers.policies.interface import FAILED, Completion, Sampling

SOURCE = "trainers"
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
) -> Tables:
    """Return the rows of completions of one prompt; rows of `generations` keep their order.

    Args:
        run_id: Run that sampled them.
        policy_id: Who wrote them.
        group_id: Attempts that belong together.
        asked: The prompt.
        completions: The completions; a failed one is a row with its reason and without a kernel.
        sampling: How they were drawn.
        first: Place of the first of them in the group.

    Returns:
        Rows of prompts, generations, kernels, kernel_features and analyses.
    """
    tables: Tables = {
        "prompts": [_make_prompt_row(asked)],
        "generations": [],
        "kernels": [],
        "kernel_features": [],
        "analyses": [],
    }
    kernels: dict[str, Row] = {}
    settings = json.dumps(asdict(sampling))
    for index, completion in enumerate(completions, start=first):
        parsed = _parse(completion)
        kernel = _make_kernel_row(parsed)
        if kernel is not None:
            kernels.setdefault(kernel["kernel_id"], kernel)
        generation_id = uuid7()
        tables["generations"].append(
            {
                "generation_id": generation_id,
                "run_id": run_id,
                "policy_id": policy_id,
                "kernel_id": kernel and kernel["kernel_id"],
                "group_id": group_id,
                "sample_index": index,
                "trajectory_id": generation_id,
                "turn": 0,
                "sampling": settings,
                "source": SOURCE,
                **_describe_prompt(asked),
                **_describe_completion(completion, parsed),
            }
        )
        if parsed.analysis:
            tables["analyses"].append(
                {
                    "analysis_id": uuid7(),
                    # The analysis is about the kernels shown, not about the one that follows it.
                    "kernel_id": None,
                    "generation_id": generation_id,
                    "kind": "model",
                    "author": policy_id,
                    "body": parsed.analysis,
                    "techniques": list(parsed.techniques),
                    "fastest_kernel_id": find_fastest(parsed, asked),
                }
            )
    tables["kernels"] = list(kernels.values())
    tables["kernel_features"] = _extract_features(tables["kernels"])
    return tables


def format_completion(completion: Completion) -> str:
    """Return the stored form of a completion; separate reasoning comes first."""
    text = clean_text(completion.text)
    if not completion.reasoning:
        return text
    return f"<think>\n{clean_text(completion.reasoning)}\n</think>\n\n{text}"


def find_fastest(parsed: ParsedCompletion, asked: ShownPrompt) -> str | None:
    """Return the exemplar that an analysis names as the fastest, or None."""
    if parsed.fastest is None or not 1 <= parsed.fastest <= len(asked.exemplar_kernel_ids):
        return None
    return asked.exemplar_kernel_ids[parsed.fastest - 1]


def _parse(completion: Completion) -> ParsedCompletion:
    if completion.finish_reason == FAILED:
        return ParsedCompletion(parse_error=completion.error or "no answer")
    return parse_completion(completion.text, completion.finish_reason)


def _describe_prompt(asked: ShownPrompt) -> Row:
    return {
        "task_id": asked.task_id,
        "prompt_id": asked.prompt_id,
        "exemplar_kernel_ids": asked.exemplar_kernel_ids,
        "exemplar_scores": asked.exemplar_scores,
        "lake_id": asked.lake_id,
        "snapshot_id": asked.snapshot_id,
        "namespace": asked.namespace,
        "step": asked.step,
    }


def _describe_completion(completion: Completion, parsed: ParsedCompletion) -> Row:
    failed = completion.finish_reason == FAILED
    return {
        "completion": None if failed else format_completion(completion),
        "finish_reason": completion.finish_reason,
        "parse_error": parsed.parse_error,
        "analysis": parsed.analysis,
        "design": parsed.design,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_usd": completion.cost_usd,
    }


def _make_prompt_row(asked: ShownPrompt) -> Row:
    return {
        "prompt_id": asked.prompt_id,
        "messages": messages_json(asked.messages),
        "template_hash": asked.template_hash,
        "task_id": asked.task_id,
        "purpose": asked.purpose,
    }


def _make_kernel_row(parsed: ParsedCompletion) -> Row | None:
    if parsed.code is None:
        return None
    files = {parsed.path: parsed.code, **dict(parsed.other_files)}
    others = [{"path": path, "code": code} for path, code in parsed.other_files]
    return {
        "kernel_id": kernel_id(files, parsed.path, parsed.entry_point),
        "code": parsed.code,
        "path": parsed.path,
        "entry_point": parsed.entry_point,
        "other_files": others or None,
        "source": SOURCE,
    }


def _extract_features(kernels: list[Row]) -> list[Row]:
    import pyarrow as pa

    from store import catalog, extract_features

    if not kernels:
        return []
    schema = catalog.load().table("kernels").arrow_schema
    names = ("kernel_id", "code", "path", "other_files")
    wanted = pa.schema([schema.field(name) for name in names])
    rows = [{name: row[name] for name in wanted.names} for row in kernels]
    return extract_features(pa.Table.from_pylist(rows, schema=wanted)).to_pylist()
