"""Reads the JSON Lines of Claude Code: session files, and what --output-format stream-json prints.

One line is one event: system, user, assistant, result, or a type that has no message and is left
out. An assistant line has one or more blocks (text, thinking, tool_use), and lines with one message
id are parts of one message. Results of tools come in later user lines.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from store.foreign import json_text
from store.foreign.fields import Fields

MAX_OPEN_STEPS = 1_000
MAX_OPEN_BYTES = 64 << 20
"""Steps that wait for the results of their calls; beyond this, the oldest is yielded without."""
TAIL_BYTES = 1 << 20
HARNESS = "claude-code"


def read_file(file: Path, **known: Any) -> Iterator[Fields]:
    """Yield the steps of a session file in the form of `SessionRows`.

    `known` are facts of the source about the session, which come first, such as its name or model.

    Raises ImportFailed for a line that is malformed.
    """
    about = _read_session(file) | {name: one for name, one in known.items() if one}
    waiting: dict[str, _Call] = {}
    """Calls without a result, by their id."""
    steps: deque[_Step] = deque()
    held = number = 0
    number_of: dict[str, int] = {}
    message_id = None
    for values, where, size in json_text.read_lines(file):
        line = Fields(values=values, where=where)
        role = line.text("type")
        message = line.inner("message")
        if role not in ("user", "assistant") or not message.values:
            continue
        blocks = _list_blocks(message)
        share = size
        for block in blocks:
            if _attach_result(block, waiting, share):
                held, share = held + share, 0
        if role == "user" and all(one.text("type") == "tool_result" for one in blocks):
            blocks = []
            if isinstance(message.values.get("content"), list):
                continue
        identity = message.text("id") if role == "assistant" else None
        held += size
        if identity is not None and identity == message_id and steps and held < MAX_OPEN_BYTES:
            step = steps[-1]
            step.size += size
        else:
            while steps and (
                not steps[0].is_open() or len(steps) > MAX_OPEN_STEPS or held > MAX_OPEN_BYTES
            ):
                held -= steps[0].size
                yield steps.popleft().finish(waiting)
            started = _start(line, message, role, number, number_of, about)
            step = _Step(values=started, where=where, size=size)
            steps.append(step)
            number += 1
        message_id = identity
        for block in blocks:
            _add_block(step, block, waiting)
        name = line.text("uuid")
        if name is not None:
            number_of[name] = cast("int", step.values["step"])
    for step in steps:
        yield step.finish(waiting)


def _read_session(file: Path) -> dict[str, Any]:
    """Return what the first lines and the last line of a file state about its session."""
    about: dict[str, Any] = {"name": file.stem, "harness": HARNESS}
    for count, (values, where, _) in enumerate(json_text.read_lines(file)):
        line = Fields(values=values, where=where)
        about["name"] = line.text("sessionId") or line.text("session_id") or about["name"]
        version = line.text("version") or line.text("claude_code_version")
        if version is not None:
            about["harness"] = f"{HARNESS} {version}"
        message = line.values.get("message")
        if isinstance(message, dict) and isinstance(message.get("model"), str):
            about.setdefault("model", message["model"])
        elif isinstance(values.get("model"), str):
            about.setdefault("model", values["model"])
        about.setdefault("started_at", values.get("timestamp"))
        if count >= 50:
            break
    return about | _read_result(file)


@dataclass(kw_only=True)
class _Step:
    """A step that may still get results."""

    values: dict[str, Any]
    where: str
    """Its first line."""
    size: int
    """Bytes of its lines and of the results of its calls."""

    def is_open(self) -> bool:
        """Return whether a call has no result yet."""
        return any("result" not in call for call in self.values["calls"])

    def finish(self, waiting: dict[str, _Call]) -> Fields:
        """Return the step; results that come later are left out."""
        for call in self.values["calls"]:
            waiting.pop(call["id"] or "", None)
        return Fields(values=self.values, where=self.where, size=self.size)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call without a result, with its step."""

    values: dict[str, Any]
    step: _Step


def _start(
    line: Fields,
    message: Fields,
    role: str,
    number: int,
    number_of: dict[str, int],
    about: dict[str, Any],
) -> dict[str, Any]:
    usage = message.inner("usage")
    parent = number_of.get(line.text("parentUuid") or "")
    content = message.values.get("content")
    read = [
        usage.whole(name, 2**53) or 0
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    return {
        "session": about,
        "step": number,
        "parent": parent if parent is not None and parent != number - 1 else None,
        "role": role,
        "content": content if isinstance(content, str) else None,
        "reasoning": None,
        "model": message.text("model"),
        "at": line.values.get("timestamp"),
        "prompt_tokens": sum(read) or None,
        "completion_tokens": usage.whole("output_tokens", 2**53),
        "calls": [],
    }


def _add_block(step: _Step, block: Fields, waiting: dict[str, _Call]) -> None:
    values = step.values
    kind = block.text("type")
    if kind == "text":
        values["content"] = _join(values["content"], block.values.get("text"))
    elif kind in ("thinking", "reasoning"):
        text = block.values.get("thinking") or block.values.get("text")
        values["reasoning"] = _join(values["reasoning"], text)
    elif kind == "tool_use":
        identity = block.text("id")
        call = {"id": identity, "tool": block.text("name"), "arguments": block.values.get("input")}
        values["calls"].append(call)
        if identity is not None:
            waiting[identity] = _Call(values=call, step=step)
    elif kind == "image":
        values["content"] = _join(values["content"], "[image]")


def _attach_result(block: Fields, waiting: dict[str, _Call], size: int) -> bool:
    """Add a result to its call; return whether there is one that waits for it."""
    if block.text("type") != "tool_result":
        return False
    call = waiting.pop(block.text("tool_use_id") or "", None)
    if call is None:
        return False
    call.values["result"] = read_content(block.values.get("content"))
    call.values["is_error"] = bool(block.flag("is_error"))
    call.step.size += size
    return True


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
            parts.append(text if isinstance(text, str) else f"[{kind[:40]}]")
    return "\n".join(parts)


def _list_blocks(message: Fields) -> list[Fields]:
    content = message.values.get("content")
    return message.list("content") if isinstance(content, list) else []


def _join(before: Any, text: Any) -> str | None:
    if not isinstance(text, str) or not text:
        return cast("str | None", before)
    return text if not before else f"{before}\n{text}"


def _read_result(file: Path) -> dict[str, Any]:
    """Return outcome and price from the line `result` at the end of a stream, if it is there."""
    if file.suffix == ".gz":
        return {}
    with open(file, "rb") as handle:
        size = handle.seek(0, 2)
        handle.seek(max(0, size - TAIL_BYTES))
        lines = handle.read().splitlines()
    for line in reversed(lines[-5:]):
        if b'"result"' not in line:
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and cast("dict[str, Any]", value).get("type") == "result":
            said = cast("dict[str, Any]", value)
            cost = said.get("total_cost_usd")
            return {
                "outcome": said.get("subtype") if isinstance(said.get("subtype"), str) else None,
                "cost_usd": cost if isinstance(cost, int | float) else None,
            }
    return {}
