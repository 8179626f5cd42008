"""The rows of agent sessions: one for the session, one per step and tool call, and its attempts.

Readers of transcripts yield steps in one form. A step is `Fields` with these names:

    session  object: name, model, harness, problem, outcome, prompt_tokens, completion_tokens,
             cost_usd, started_at, parent
    step     position, from 0
    parent   position of the step that it continues, if that is not the one before
    role     system, user, assistant or tool
    content, reasoning, model, at, prompt_tokens, completion_tokens
    given    true for a message of the prompt that another session wrote
    calls    list of objects: tool, arguments, result, is_error

The files that an agent writes and edits are followed from its tool calls; nothing is executed.
Claude Code's Write, Edit and MultiEdit are known, and the same operations under the names and
arguments of other harnesses. An edit of a file whose text is unknown, or whose old text is not in
it exactly once, makes the file unknown until it is written as a whole.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, cast

from store.code.completion import ENTRY_POINT
from store.code.languages import find_language
from store.foreign import text_files
from store.foreign.text_files import Fields, clean
from store.ids import content_id
from store.importers.reading.pieces import ENTRY_PATH, Attempt, BundleRows, TaskOrigin

MAX_OPEN_STEPS = 1_000
MAX_OPEN_BYTES = 64 << 20
"""Steps that wait for the results of their calls; beyond this, the oldest is yielded without."""
TAIL_BYTES = 1 << 20
HARNESS = "claude-code"
ROLES = ("system", "user", "assistant", "tool")
MOST_TOKENS = 2**53
MAX_FILES = 1_000
MAX_CHARACTERS = 2_000_000
"""A larger file is not followed."""
_WRITES = {"write", "write_file", "create_file", "create", "writefile"}
_EDITS = {"edit", "str_replace", "edit_file", "multiedit", "replace", "strreplacefile"}
_COMMANDS = {"str_replace_editor", "str_replace_based_edit_tool"}
_PATHS = ("file_path", "path", "filename", "absolute_path")
_CONTENTS = ("content", "file_text", "contents", "text")
_KERNEL = re.compile(
    r"^\s*class\s+ModelNew\b|@triton\.(?:jit|autotune)|\b__global__\b|@cute\.(?:kernel|jit)",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class SessionOrigin(TaskOrigin):
    """Options of an importer of sessions."""

    kernel_file: str = "*"
    """Pattern of the names of files that are kernels, such as solution.py."""
    source: str = ""
    """Repository that the sessions come from."""


@dataclass(kw_only=True)
class _Session:
    """What is known of a session while its steps arrive."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    """The files that it has written so far, by path."""
    attempts: int = 0
    before: Attempt | None = None
    """Attempt that the next one continues."""
    kernel_id: str | None = None
    opening: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Messages before the first answer: the prompt of all attempts."""
    answered: bool = False


@dataclass
class SessionRows:
    """Adds the steps of one file; call `add` for each step in order."""

    importer: str
    task_id: str | None = None
    kernel_file: str = "*"
    """Names of the files that are kernels."""
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])

    def add(self, rows: BundleRows, step: Fields) -> None:
        """Add a step with its calls, and the attempt if it wrote a kernel."""
        about = step.inner("session")
        session_id = self.identify(about.require_text("name"))
        policy = rows.add_policy(about.text("model") or "unknown", "model")
        state = self._sessions.get(session_id)
        if state is None:
            state = self._sessions[session_id] = _Session()
            parent = about.text("parent")
            parent_id = None if parent is None else self.identify(parent)
            row = {
                "session_id": session_id,
                "run_id": rows.run_id or None,
                "policy_id": policy,
                "task_id": self.task_id,
                "problem": about.text("problem"),
                "harness": about.text("harness"),
                "name": about.text("name"),
                "parent_session_id": parent_id if parent_id in self._sessions else None,
                "outcome": about.text("outcome"),
                "cost_usd": about.number("cost_usd"),
                "created_at": about.moment("started_at") or datetime.now(UTC),
                **_read_tokens(about),
                **rows.origin(),
            }
            rows.add("sessions", (session_id,), row)
        number = step.require_whole("step")
        role, content = step.text("role"), step.prose("content")
        if role not in ROLES:
            raise step.refuse("role", " or ".join(ROLES))
        given = bool(step.flag("given"))
        is_answer = role == "assistant" and not given
        if is_answer:
            state.answered = True
        elif not state.answered and content is not None and role != "tool":
            state.opening.append({"role": role, "content": content})
        kernel_id = None
        if is_answer:
            # The kernel that the step wrote to a file, or states in its text.
            written: tuple[str, str] | None = None
            for call in step.list("calls"):
                arguments = call.values.get("arguments")
                if call.flag("is_error") is not True and isinstance(arguments, Mapping):
                    named = cast("Mapping[str, Any]", arguments)
                    path = _follow(state.texts, call.text("tool") or "", named)
                    file = "" if path is None else PurePosixPath(path.replace("\\", "/")).name
                    # A source file that defines ModelNew or has device code.
                    if path is not None and (
                        fnmatchcase(file, self.kernel_file)
                        and find_language(file) is not None
                        and _KERNEL.search(state.texts[path]) is not None
                    ):
                        written = (file, state.texts[path])
            if written is not None and clean(written[1]) == written[1]:
                path = f"{PurePosixPath(ENTRY_PATH).stem}{PurePosixPath(written[0]).suffix}"
                kernel_id = rows.add_code(written[1], path=path)
            elif written is None and content is not None and ENTRY_POINT in content:
                kernel_id = rows.parse_completion(content)[0]
        # An edit that leaves the text as it was is no new attempt.
        is_new = kernel_id is not None and kernel_id != state.kernel_id
        if is_new:
            state.before = rows.add_attempt(
                ["session", session_id, str(number)],
                policy=policy,
                task_id=self.task_id,
                problem=about.text("problem"),
                kernel_id=kernel_id,
                prompt_id=rows.add_prompt(state.opening, self.task_id),
                trajectory_id=session_id,
                turn=state.attempts,
                parent_generation_id=state.before and state.before.generation_id,
                completion=content,
                created_at=step.moment("at"),
                **_read_tokens(step),
            )
            state.attempts += 1
            state.kernel_id = kernel_id
        row = {
            "session_id": session_id,
            "step": number,
            "parent_step": step.whole("parent"),
            "role": role,
            "content": content,
            "reasoning": step.prose("reasoning"),
            "model": step.text("model"),
            "generation_id": state.before.generation_id if is_new and state.before else None,
            "created_at": step.moment("at") or datetime.now(UTC),
            **_read_tokens(step),
        }
        rows.add("session_steps", (session_id, str(number)), row)
        for index, call in enumerate(step.list("calls")):
            row = {
                "session_id": session_id,
                "step": number,
                "call_index": index,
                "tool": call.text("tool") or "unknown",
                "arguments": call.json("arguments"),
                "result": call.prose("result"),
                "is_error": call.flag("is_error"),
            }
            rows.add("tool_calls", (session_id, str(number), str(index)), row)

    def last_attempt(self, name: str) -> Attempt | None:
        """Return the newest attempt of the session that the source calls `name`, or None."""
        state = self._sessions.get(self.identify(name))
        return None if state is None else state.before

    def identify(self, name: str) -> str:
        """Return the id of the session that the source calls `name`."""
        return content_id("session", self.importer, name)


def _read_tokens(fields: Fields) -> dict[str, Any]:
    names = ("prompt_tokens", "completion_tokens")
    return {name: fields.whole(name, MOST_TOKENS) for name in names}


def _follow(texts: dict[str, str], tool: str, arguments: Mapping[str, Any]) -> str | None:
    """Apply a call that succeeded to the texts of files; return the path that it wrote, or None."""
    name = tool.rpartition(".")[2].lower()
    if name in _COMMANDS:
        name = str(arguments.get("command"))
    path = _first_text(arguments, _PATHS)
    if path is None:
        return None
    if name in _WRITES:
        text = _first_text(arguments, _CONTENTS)
    elif name in _EDITS and path in texts:
        text = _edit(texts[path], arguments)
    else:
        return None
    if text is None or len(text) > MAX_CHARACTERS or len(texts) >= MAX_FILES:
        texts.pop(path, None)
        return None
    texts[path] = text
    return path


def _edit(text: str, arguments: Mapping[str, Any]) -> str | None:
    several = arguments.get("edits")
    listed = cast("Sequence[Any]", several) if isinstance(several, list) else [arguments]
    for one in listed:
        edit = cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {}
        old = _first_text(edit, ("old_string", "old_str"))
        new = _first_text(edit, ("new_string", "new_str"))
        if not old or new is None:
            return None
        if edit.get("replace_all") is True:
            text = text.replace(old, new)
        elif text.count(old) == 1:
            text = text.replace(old, new, 1)
        else:
            return None
        if len(text) > MAX_CHARACTERS:
            return None
    return text


def _first_text(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((values[name] for name in names if isinstance(values.get(name), str)), None)


def read_claude_code(file: Path, **known: Any) -> Iterator[Fields]:
    """Yield the steps of a session file of Claude Code, or of what its stream-json prints.

    One line is one event: system, user, assistant, result, or a type that has no message and is
    left out. An assistant line has one or more blocks (text, thinking, tool_use), and lines with
    one message id are parts of one message. Results of tools come in later user lines.

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
    for line in text_files.read_lines(file):
        where, size = line.where, line.size
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
                all("result" in call for call in steps[0].values["calls"])
                or len(steps) > MAX_OPEN_STEPS
                or held > MAX_OPEN_BYTES
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
    for count, line in enumerate(text_files.read_lines(file)):
        values = line.values
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
