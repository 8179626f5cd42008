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
    tokens   object of lists by token: prompt_ids, completion_ids, loss_mask, sampler_logprobs

The figures of a session come after its steps: `results_of` (its name), `quote` and `figures`, a
list of metric, figure and baseline, in which the metric `correct` is a verdict.

Each kernel that a step writes to a file, passes to a tool or states in its text is an attempt, and
so is an answer with tokens.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, cast

from store.code.completion import ENTRY_POINT
from store.code.entry_points import choose_stored
from store.code.languages import find_language
from store.errors import ImportFailed, RolloutRejected
from store.foreign import left_out, text_files
from store.foreign.text_files import Fields, clean
from store.ids import content_id
from store.importers.reading.pieces import (
    ENTRY_PATH,
    Attempt,
    BundleRows,
    TaskOrigin,
    find_path,
    read_content,
)
from store.importers.reading.session_files import SessionFiles, is_kernel
from store.rollouts.rows import ROLES, add_tokens

MAX_OPEN_STEPS = 1_000
MAX_OPEN_BYTES = 64 << 20
"""Steps that wait for the results of their calls; beyond this, the oldest is yielded without."""
TAIL_BYTES = 1 << 20
HARNESS = "claude-code"
MOST_TOKENS = 2**53


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

    policy: str
    problem: str | None
    files: SessionFiles = field(default_factory=SessionFiles)
    """The files that it has written so far."""
    attempts: int = 0
    before: Attempt | None = None
    """Attempt that the next one continues."""
    last: Attempt | None = None
    """The last attempt with a kernel."""
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
        """Add a step with its calls, and the attempt if it wrote a kernel; or the figures."""
        if step.text("results_of") is not None:
            if step.values["figures"]:
                self._add_figures(rows, step)
            return
        # What may be malformed is read before the first row is added.
        about, number = step.inner("session"), step.require_whole("step")
        name, problem = about.require_text("name"), about.text("problem")
        policy_name, session_id = about.text("model") or "unknown", self.identify(name)
        role, content = ROLES.get(step.text("role") or ""), step.prose("content")
        if role is None:
            raise step.refuse("role", "system, user, assistant or tool")
        given = bool(step.flag("given"))
        calls: list[dict[str, Any]] = []
        for call in step.list("calls"):
            with left_out.errors():
                row = {
                    "session_id": session_id,
                    "step": number,
                    "call_index": len(calls),
                    "tool": call.text("tool") or "unknown",
                    "arguments": call.json("arguments"),
                    "result": call.prose("result"),
                    "is_error": call.flag("is_error"),
                }
                calls.append(row | {"given": call.values.get("arguments")})
        step_row = {
            "session_id": session_id,
            "step": number,
            "parent_step": step.whole("parent"),
            "role": role,
            "content": content,
            "reasoning": step.prose("reasoning"),
            "model": step.text("model"),
            "created_at": step.moment("at") or datetime.now(UTC),
            **_read_tokens(step),
        }
        state = self._sessions.get(session_id)
        if state is None:
            parent = about.text("parent")
            parent_id = None if parent is None else self.identify(parent)
            row = {
                "session_id": session_id,
                "run_id": rows.run_id or None,
                "policy_id": policy_name,
                "task_id": self.task_id,
                "problem": problem,
                "harness": about.text("harness"),
                "name": name,
                "parent_session_id": parent_id if parent_id in self._sessions else None,
                "outcome": about.text("outcome"),
                "cost_usd": about.number("cost_usd"),
                "created_at": about.moment("started_at") or datetime.now(UTC),
                **_read_tokens(about),
                **rows.origin(),
            }
            rows.add("sessions", (session_id,), row)
            state = self._sessions[session_id] = _Session(policy=policy_name, problem=problem)
        policy = rows.add_policy(policy_name, "model")
        is_answer = role == "assistant" and not given
        if is_answer:
            state.answered = True
        elif not state.answered and content is not None and role != "tool":
            state.opening.append({"role": role, "content": content})
        kernel_ids: list[str | None] = []
        tokens: dict[str, Any] = {}
        if is_answer:
            stated_tokens = step.inner("tokens").values.items()
            tokens = {key: value for key, value in stated_tokens if value is not None}
            written: dict[str, str] = {}
            for call in calls:
                if call["is_error"] is not True:
                    written |= self._find_kernels(state.files, call["tool"], call["given"])
            for file, text in written.items():
                path = f"{PurePosixPath(ENTRY_PATH).stem}{PurePosixPath(file).suffix}"
                entry_point = choose_stored(text) if path == ENTRY_PATH else ENTRY_POINT
                kernel_ids.append(
                    rows.add_kernel({path: text}, entry_path=path, entry_point=entry_point)
                )
            if not kernel_ids and content is not None and ENTRY_POINT in content:
                stated, _ = rows.parse_completion(content)
                kernel_ids += [] if stated is None else [stated]
        attempt_id = None
        if tokens and not kernel_ids:
            kernel_ids.append(None)
        for place, kernel_id in enumerate(kernel_ids):
            is_last = place == len(kernel_ids) - 1
            is_same = state.last is not None and kernel_id == state.last.kernel_id
            # An edit that leaves the text as it was is no new attempt.
            if is_same and not (tokens and is_last):
                continue
            state.before = rows.add_attempt(
                ["session", session_id, str(number), *([] if is_last else [str(place)])],
                policy=policy,
                task_id=self.task_id,
                problem=problem,
                kernel_id=kernel_id,
                prompt_id=rows.add_prompt(state.opening, self.task_id),
                trajectory_id=session_id,
                turn=state.attempts,
                parent_generation_id=state.before and state.before.generation_id,
                completion=content,
                created_at=step.moment("at"),
                **(_read_tokens(step) if is_last else {}),
            )
            state.attempts += 1
            state.last = state.last if kernel_id is None else state.before
            attempt_id = state.before.generation_id
        if tokens and attempt_id is not None:
            try:
                add_tokens(rows, attempt_id, tokens)
            except RolloutRejected as error:
                left_out.get_record().refuse(ImportFailed(f"{step.where}: {error.key} {error.why}"))
        row = step_row | {"generation_id": attempt_id}
        rows.add("session_steps", (session_id, str(number)), row)
        for call in calls:
            del call["given"]
            rows.add("tool_calls", (session_id, str(number), str(call["call_index"])), call)

    def _find_kernels(self, files: SessionFiles, tool: str, arguments: Any) -> dict[str, str]:
        """Return the kernels that a call writes or passes on, by the names of their files."""
        paths = files.follow(tool, arguments)
        kernels = {path: text for path in paths if is_kernel(text := files.texts[path])}
        kernels = {
            path: text
            for path, text in kernels.items()
            if fnmatchcase(PurePosixPath(path).name, self.kernel_file)
            and (find_language(path) is not None or path.endswith(".hip"))
            and clean(text) == text
        }
        if not paths and (text := files.find_text(arguments)) is not None:
            kernels[find_path(text)] = text
        return kernels

    def _add_figures(self, rows: BundleRows, results: Fields) -> None:
        """Add the figures of a session to its last attempt with a kernel.

        A session without a kernel gets an attempt without one.
        """
        session_id = self.identify(results.require_text("results_of"))
        state = self._sessions.get(session_id)
        if state is None:
            raise ImportFailed(f"{results.where}: no step of the session can be read")
        if state.before is None:
            state.before = rows.add_attempt(
                ["session", session_id, "no kernel"],
                policy=state.policy,
                task_id=self.task_id,
                problem=state.problem,
                parse_error="the session wrote no kernel",
                trajectory_id=session_id,
            )
        attempt, quote = state.last or state.before, results.values["quote"]
        for metric, figure, baseline in results.values["figures"]:
            if metric == "correct" and figure is not None:
                rows.add_result(attempt, bool(figure), quote, gpu=None)
            else:
                rows.add_claim(attempt, metric, figure, quote, baseline=baseline)

    def identify(self, name: str) -> str:
        """Return the id of the session that the source calls `name`."""
        return content_id("session", self.importer, name)


def _read_tokens(fields: Fields) -> dict[str, Any]:
    names = ("prompt_tokens", "completion_tokens")
    return {name: fields.whole(name, MOST_TOKENS) for name in names}


def name_metric(kind: str, label: str) -> str:
    """Return the metric of a figure that a source calls `label`, such as reward_speed."""
    return f"{kind}_{' '.join(clean(label).split())}"[:100]


def read_call(call: Fields, result: str | None = None) -> dict[str, Any]:
    """Return a call in the form of OpenAI, with its name and arguments in `function` or not."""
    function = call.values.get("function") or None
    is_name = isinstance(function, str) and not function.lstrip().startswith("{")
    named = call.inner("function") if function and not is_name else call
    arguments = next(
        (
            one
            for key in ("arguments", "input", "args", "parameters")
            if (one := named.values.get(key))
        ),
        None,
    )
    for _ in range(3):  # some clients put them in a list, and encode JSON as a JSON text once more
        listed = cast("list[Any]", arguments if isinstance(arguments, list) else [])
        if listed and all(isinstance(one, tuple) for one in listed):  # a MAP of Parquet
            arguments = dict(listed)
        elif len(listed) == 1 and str(listed[0]).lstrip().startswith("{"):
            arguments = listed[0]
        elif isinstance(arguments, str) and arguments.lstrip().startswith(("{", "[", '"')):
            # What the model wrote need not be JSON.
            with suppress(ImportFailed):
                arguments = text_files.parse_json(arguments, call.where)
    if isinstance(arguments, Mapping):
        # A column of objects has NULL where another row has a name.
        by_name = cast("Mapping[str, Any]", arguments)
        arguments = {name: value for name, value in by_name.items() if value is not None}
    tool = named.text("function" if is_name else "name")
    return {"tool": tool, "arguments": arguments, "result": result}


def read_calls(message: Fields) -> list[dict[str, Any]]:
    """Return the calls of a message: in `tool_calls`, `function_call` or parts of its content."""
    content = message.values.get("content")
    parts = message.list("content") if isinstance(content, list) and "tool" in str(content) else []
    listed = [
        *(message.list("tool_calls") if message.values.get("tool_calls") else ()),
        *(part for part in parts if part.text("type") in ("tool_use", "tool_call")),
    ]
    if message.values.get("function_call"):
        listed.append(message.inner("function_call"))
    calls: list[dict[str, Any]] = []
    for call in listed:
        with left_out.errors():
            calls.append(read_call(call))
    return calls


def read_turns(row: Fields, name: str) -> list[Fields]:
    """Return a completion as messages: a text, a message, or a list of them, also as JSON."""
    value = row.values.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str) and re.match(r"\s*\[?\s*\{\s*\"(?:role|content)\"\s*:", value):
        with suppress(ImportFailed):
            value = text_files.parse_json(value, row.where)
    listed = cast("list[Any]", value if isinstance(value, list) else [value])
    turns: list[Fields] = []
    for place, turn in enumerate(listed):
        if isinstance(turn, str):
            turn = {"role": "assistant", "content": turn}
        if not isinstance(turn, Mapping):
            kind = type(value).__name__
            raise ImportFailed(f"{row.where}: {name} is {kind}, no text and no messages")
        where = f"{row.where}, {name} {place}"
        turns.append(Fields(values=cast("Mapping[str, Any]", turn), where=where))
    return turns


def find_kernel(calls: list[list[dict[str, Any]]]) -> str | None:
    """Return the kernel that the calls of an answer leave in a file or pass on, the last one."""
    files, kernel = SessionFiles(), None
    for call in (call for listed in calls for call in listed):
        paths = files.follow(call["tool"] or "", call["arguments"])
        texts = [files.texts[path] for path in paths] or [files.find_text(call["arguments"])]
        kernel = next((one for one in reversed(texts) if one and is_kernel(one)), kernel)
    return kernel


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
