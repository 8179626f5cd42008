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

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, cast

from store.code.completion import ENTRY_POINT
from store.code.languages import find_language
from store.foreign.fields import Fields, clean
from store.ids import content_id
from store.importers.reading.pieces import TaskOrigin
from store.importers.reading.rows import ENTRY_PATH, Attempt, BundleRows

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
        kernel_id = self._find_kernel(rows, state, step, content) if is_answer else None
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

    def _find_kernel(
        self, rows: BundleRows, state: _Session, step: Fields, content: str | None
    ) -> str | None:
        """Add the kernel that a step wrote to a file, or states in its text; return its id."""
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
        if written is not None:
            file, text = written
            if clean(text) != text:
                return None
            suffix = PurePosixPath(file).suffix
            return rows.add_code(text, path=f"{PurePosixPath(ENTRY_PATH).stem}{suffix}")
        if content is not None and ENTRY_POINT in content:
            return rows.parse_completion(content)[0]
        return None


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
    """Return the text after one or several replacements, or None if one does not apply."""
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
