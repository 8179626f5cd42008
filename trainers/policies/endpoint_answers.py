"""Reads the answers of a chat server: texts, finish reasons, and numbers of tokens."""

from __future__ import annotations

import json
from typing import Any, cast

from pipelines import Message
from store.endpoint import Unreadable
from trainers.policies.interface import (
    FAILED,
)

BYTES_PER_TOKEN = 3
"""Estimate for a prompt that the server has not counted yet; low, to reserve more than needed."""


_TEMPLATE_TOKENS = 1 << 12
"""Tokens of a prompt beyond its bytes that a server may count: its template, a system prompt."""


_LONGEST_REASON = 40


def read_choice(choice: Any) -> tuple[str, str | None, str]:
    """Return text, reasoning and finish reason of one choice; raises Unreadable."""
    match choice:
        case {"message": dict(found)}:
            message = cast("dict[str, Any]", found)
        case _:
            raise Unreadable("malformed answer")
    content = message.get("content")
    if isinstance(content, list):
        parts = [one for one in cast("list[Any]", content) if isinstance(one, dict)]
        content = "".join(str(one.get("text") or "") for one in cast("list[dict[str, Any]]", parts))
    text = content if isinstance(content, str) else ""
    calls = message.get("tool_calls")
    if not text and isinstance(calls, list):
        # A model may pass the file to a tool that was not offered.
        text = "\n".join(
            f"<tool_call>{json.dumps(call)}</tool_call>" for call in cast("list[Any]", calls)
        )
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    reason = cast("dict[str, Any]", choice).get("finish_reason")
    refusal = message.get("refusal")
    if not text and isinstance(refusal, str):
        text = refusal
    return (
        text,
        reasoning if isinstance(reasoning, str) else None,
        reason[:_LONGEST_REASON] if isinstance(reason, str) and reason != FAILED else "stop",
    )


def read_usage(
    body: Any, messages: list[Message], shares: list[int], most_out: int
) -> tuple[int, int]:
    """Return the tokens of prompt and completions.

    If the server gives no valid count, this is an estimate. Counts are limited to what is possible:
    a token has at least one byte, and completions have at most the requested tokens, or the
    received bytes.
    """
    size = sum(len(turn["content"].encode(errors="replace")) for turn in messages)
    match body:
        case {"usage": {"prompt_tokens": given, "completion_tokens": taken}}:
            tokens_in, tokens_out = _read_count(given), _read_count(taken)
        case _:
            tokens_in = tokens_out = None
    if tokens_in is None:
        tokens_in = size // BYTES_PER_TOKEN
    if tokens_out is None:
        tokens_out = sum(shares) // BYTES_PER_TOKEN
    return min(tokens_in, size + _TEMPLATE_TOKENS), min(tokens_out, most_out)


def _read_count(value: Any) -> int | None:
    """Return a number of tokens, or None if a value is not one."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else None


def count_bytes(text: str, reasoning: str | None) -> int:
    """Return the bytes of a text and its reasoning."""
    return len(text.encode(errors="replace")) + len((reasoning or "").encode(errors="replace"))


def split_tokens(total: int, shares: list[int]) -> list[int]:
    """Split a whole number by shares; the parts add up to it.

    >>> split_tokens(10, [1, 1, 2])
    [2, 3, 5]
    """
    parts: list[int] = []
    seen = given = 0
    for share in shares:
        seen += share
        part = total * seen // sum(shares) - given
        parts.append(part)
        given += part
    return parts
