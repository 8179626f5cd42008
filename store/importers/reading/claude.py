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
from store.importers.reading.sessions import MOST_TOKENS

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
    about = _read_session(file) | {name: value for name, value in known.items() if value}
    waiting: dict[str, tuple[dict[str, Any], _Step]] = {}
    """Calls without a result and their steps, by the id of the call."""
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
        content = message.values.get("content")
        blocks = message.list("content") if isinstance(content, list) else []
        share = size
        for block in blocks:
            if block.text("type") != "tool_result":
                continue
            call, step = waiting.pop(block.text("tool_use_id") or "", (None, None))
            if call is not None and step is not None:
                call["result"] = read_content(block.values.get("content"))
                call["is_error"] = bool(block.flag("is_error"))
                step.size += share
                held, share = held + share, 0
        if role == "user" and all(block.text("type") == "tool_result" for block in blocks):
            blocks = []
            if isinstance(content, list):
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
            usage, parent = message.inner("usage"), number_of.get(line.text("parentUuid") or "")
            read = [
                usage.whole(f"{kind}input_tokens", MOST_TOKENS) or 0
                for kind in ("", "cache_read_", "cache_creation_")
            ]
            started: dict[str, Any] = {
                "session": about,
                "step": number,
                "parent": parent if parent is not None and parent != number - 1 else None,
                "role": role,
                "content": content if isinstance(content, str) else None,
                "reasoning": None,
                "model": message.text("model"),
                "at": line.values.get("timestamp"),
                "prompt_tokens": sum(read) or None,
                "completion_tokens": usage.whole("output_tokens", MOST_TOKENS),
                "calls": [],
            }
            step = _Step(values=started, where=where, size=size)
            steps.append(step)
            number += 1
        message_id = identity
        for block in blocks:
            kind, text = block.text("type"), block.values.get("text")
            if kind == "text":
                step.join("content", text)
            elif kind in ("thinking", "reasoning"):
                step.join("reasoning", block.values.get("thinking") or text)
            elif kind == "image":
                step.join("content", "[image]")
            elif kind == "tool_use":
                name = block.text("id")
                call = {
                    "id": name,
                    "tool": block.text("name"),
                    "arguments": block.values.get("input"),
                }
                step.values["calls"].append(call)
                if name is not None:
                    waiting[name] = (call, step)
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

    def join(self, name: str, text: Any) -> None:
        """Append a text to those of the step, on a line of its own."""
        if isinstance(text, str) and text:
            before = self.values[name]
            self.values[name] = f"{before}\n{text}" if before else text

    def finish(self, waiting: dict[str, Any]) -> Fields:
        """Return the step; results that come later are left out."""
        for call in self.values["calls"]:
            waiting.pop(call["id"] or "", None)
        return Fields(values=self.values, where=self.where, size=self.size)


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
