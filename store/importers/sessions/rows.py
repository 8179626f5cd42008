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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, cast

from store.code.completion import ENTRY_POINT
from store.foreign.fields import Fields, clean
from store.ids import content_id
from store.importers.reading.attempts import Attempt, AttemptRows
from store.importers.reading.rows import ENTRY_PATH, BundleRows
from store.importers.sessions.written_files import WrittenFiles

ROLES = ("system", "user", "assistant", "tool")


@dataclass(kw_only=True)
class _Session:
    """What is known of a session while its steps arrive."""

    files: WrittenFiles
    attempts: int = 0
    before: Attempt | None = None
    """Attempt that the next one continues."""
    kernel_id: str | None = None
    opening: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Messages before the first answer: the prompt of all attempts."""
    answered: bool = False


@dataclass(kw_only=True)
class SessionRows:
    """Adds the steps of one file; call `add` for each step in order."""

    importer: str
    task_id: str | None = None
    kernel_file: str = "*"
    """Names of the files that are kernels."""
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])

    def add(self, gathered: BundleRows, run_id: str, step: Fields) -> str | None:
        """Add a step with its calls, and the attempt if it wrote a kernel; return its kernel."""
        rows = AttemptRows(gathered=gathered, importer=self.importer, run_id=run_id)
        about = step.inner("session")
        session_id = self.identify(about.require_text("name"))
        policy = rows.gathered.add_policy(about.text("model") or "unknown", "model")
        state = self._sessions.get(session_id)
        if state is None:
            state = self._sessions[session_id] = _Session(files=WrittenFiles(self.kernel_file))
            self._add_session(gathered, run_id, session_id, policy, about)
        number = step.require_whole("step")
        role, content = step.text("role"), step.prose("content")
        if role not in ROLES:
            raise step.refuse("role", " or ".join(ROLES))
        given = bool(step.flag("given"))
        if role == "assistant" and not given:
            state.answered = True
        elif not state.answered and content is not None and role != "tool":
            state.opening.append({"role": role, "content": content})
        kernel_id = None if given else self._find_kernel(rows, state, step, role, content)
        attempt_id = None
        if kernel_id is not None:
            attempt = rows.add_attempt(
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
                prompt_tokens=step.whole("prompt_tokens", 2**53),
                completion_tokens=step.whole("completion_tokens", 2**53),
                created_at=step.moment("at"),
            )
            attempt_id, state.before = attempt.generation_id, attempt
            state.attempts += 1
        row = {
            "session_id": session_id,
            "step": number,
            "parent_step": step.whole("parent"),
            "role": role,
            "content": content,
            "reasoning": step.prose("reasoning"),
            "model": step.text("model"),
            "generation_id": attempt_id,
            "prompt_tokens": step.whole("prompt_tokens", 2**53),
            "completion_tokens": step.whole("completion_tokens", 2**53),
            "created_at": step.moment("at") or datetime.now(UTC),
        }
        gathered.add("session_steps", (session_id, str(number)), row)
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
            gathered.add("tool_calls", (session_id, str(number), str(index)), row)
        return kernel_id

    def last_attempt(self, name: str) -> Attempt | None:
        """Return the newest attempt of the session that the source calls `name`, or None."""
        state = self._sessions.get(self.identify(name))
        return None if state is None else state.before

    def identify(self, name: str) -> str:
        """Return the id of the session that the source calls `name`."""
        return content_id("session", self.importer, name)

    def _add_session(
        self, gathered: BundleRows, run_id: str, session_id: str, policy: str, about: Fields
    ) -> None:
        parent = about.text("parent")
        parent_id = None if parent is None else self.identify(parent)
        row = {
            "session_id": session_id,
            "run_id": run_id or None,
            "policy_id": policy,
            "task_id": self.task_id,
            "problem": about.text("problem"),
            "harness": about.text("harness"),
            "name": about.text("name"),
            "parent_session_id": parent_id if parent_id in self._sessions else None,
            "outcome": about.text("outcome"),
            "prompt_tokens": about.whole("prompt_tokens", 2**53),
            "completion_tokens": about.whole("completion_tokens", 2**53),
            "cost_usd": about.number("cost_usd"),
            "created_at": about.moment("started_at") or datetime.now(UTC),
            **gathered.origin(),
        }
        gathered.add("sessions", (session_id,), row)

    def _find_kernel(
        self, rows: AttemptRows, state: _Session, step: Fields, role: str, content: str | None
    ) -> str | None:
        """Add the kernel that a step wrote to a file, or states in its text; return its id."""
        if role != "assistant":
            return None
        written: tuple[str, str] | None = None
        for call in step.list("calls"):
            arguments = call.values.get("arguments")
            if call.flag("is_error") is not True and isinstance(arguments, Mapping):
                named = cast("Mapping[str, Any]", arguments)
                written = state.files.follow(call.text("tool") or "", named) or written
        kernel_id = None
        if written is not None:
            kernel_id = _add_file(rows, *written)
        elif content is not None and ENTRY_POINT in content:
            kernel_id, _ = rows.parse_completion(content)
        # An edit that leaves the text as it was is no new attempt.
        if kernel_id == state.kernel_id:
            return None
        state.kernel_id = kernel_id or state.kernel_id
        return kernel_id


def _add_file(rows: AttemptRows, path: str, text: str) -> str | None:
    if clean(text) != text:
        return None
    suffix = PurePosixPath(path.replace("\\", "/")).suffix
    return rows.add_kernel(text, path=f"{PurePosixPath(ENTRY_PATH).stem}{suffix}")
