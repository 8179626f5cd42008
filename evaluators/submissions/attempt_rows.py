"""Rows of an attempt that an agent submits: its kernel, author, session, parent and prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import store
from store.code.entry_points import choose_stored
from store.errors import FlywheelError, UnknownName
from store.mcp.desk import IssuedPrompt

if TYPE_CHECKING:
    from store.lake.reader import Lake

SOURCE = "evaluators mcp"
PATH = "kernel.py"
_LONGEST_CODE = 500_000
_LONGEST_NOTE = 20_000
_LONGEST_NAME = 200
Tables: TypeAlias = "dict[str, list[dict[str, Any]]]"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What an agent submits."""

    task: str
    code: str
    author: str
    parent: str | None = None
    """Attempt or kernel that it continues: an id, or the start of a kernel's id."""
    session: str | None = None
    note: str | None = None
    prompt: IssuedPrompt | None = None
    client: str | None = None
    """Program that the agent runs in."""

    def __post_init__(self) -> None:
        """Refuse what no row may contain. Raises FlywheelError."""
        limits = {"code": _LONGEST_CODE, "note": _LONGEST_NOTE, "author": _LONGEST_NAME}
        for name, most in limits.items():
            text: str = getattr(self, name) or ""
            if len(text) > most:
                raise FlywheelError(
                    f"the {name} has {len(text)} characters, and may have {most}", "Shorten it."
                )
            if "\0" in text or text != store.clean_text(text):
                raise FlywheelError(
                    f"the {name} is not Unicode text", "Leave out NUL and lone surrogates."
                )
        for name in ("code", "author"):
            if not getattr(self, name).strip():
                raise FlywheelError(f"the {name} is empty", f"Give the {name} of the kernel.")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt that is stored."""

    generation_id: str
    kernel_id: str
    task_id: str
    session_id: str
    turn: int
    parent_generation_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where an attempt belongs: its session, what the session has so far, and its parent."""

    session_id: str
    is_new: bool = False
    steps: int = 0
    turns: int = 0
    parent: str | None = None


def make_rows(lake: Lake, run_id: str, submission: Submission) -> tuple[Attempt, Tables]:
    """Return the attempt of a submission, and its rows.

    Args:
        lake: A reader that sees every attempt of the session.
        run_id: Run of the server.
        submission: The submission.

    Raises:
        UnknownName: there is no such task, parent or session.
    """
    task_id = store.find_task(lake, submission.task)["task_id"]
    place = _find_place(lake, task_id, submission)
    kernel = _make_kernel_row(submission.code)
    attempt = Attempt(
        generation_id=store.ids.uuid7(),
        kernel_id=kernel["kernel_id"],
        task_id=task_id,
        session_id=place.session_id,
        turn=place.turns,
        parent_generation_id=place.parent,
    )
    policy_id = submission.author.strip()
    shared = {"run_id": run_id, "policy_id": policy_id, "task_id": task_id, "source": SOURCE}
    session = {"session_id": place.session_id, "harness": submission.client, **shared}
    generation = {
        "generation_id": attempt.generation_id,
        "kernel_id": attempt.kernel_id,
        "trajectory_id": place.session_id,
        "turn": place.turns,
        "parent_generation_id": place.parent,
        "design": submission.note,
        **shared,
        **_describe_prompt(submission.prompt),
    }
    step = {
        "session_id": place.session_id,
        "step": place.steps,
        "role": "assistant",
        "content": submission.note,
        "model": policy_id,
        "generation_id": attempt.generation_id,
    }
    return attempt, {
        "policies": [{"policy_id": policy_id, "name": policy_id, "kind": "model"}],
        "kernels": [kernel],
        "kernel_features": _extract_features(kernel),
        "sessions": [session] if place.is_new else [],
        "prompts": [] if submission.prompt is None else [_make_prompt_row(submission.prompt)],
        "generations": [generation],
        "session_steps": [step],
    }


def find_attempt(lake: Lake, generation_id: str) -> Attempt:
    """Return a stored attempt by its id; raises UnknownName if there is none with a kernel."""
    row = lake.run(store.read_sql(__file__, "attempt"), {"generation_id": generation_id}).one()
    if row is None:
        raise UnknownName(
            f'no attempt "{generation_id}" with a kernel and a task',
            "Give the generation_id that submit_kernel or list_attempts named.",
        )
    return Attempt(**row)


def _find_place(lake: Lake, task_id: str, submission: Submission) -> _Place:
    parent = None if submission.parent is None else _find_parent(lake, task_id, submission.parent)
    session_id: str | None = submission.session or (
        None if parent is None else parent["session_id"]
    )
    before: str | None = None if parent is None else parent["generation_id"]
    if session_id is None:
        return _Place(session_id=store.ids.uuid7(), is_new=True, parent=before)
    steps, turns = _count_steps(lake, session_id)
    return _Place(session_id=session_id, steps=steps, turns=turns, parent=before)


def _find_parent(lake: Lake, task_id: str, wanted: str) -> Mapping[str, Any]:
    """Return generation_id and session_id of the attempt that a submission continues.

    A kernel stands for its newest attempt at the task, which may belong to another author. Its
    session is then not continued.
    """
    named = {"task_id": task_id, "generation_id": wanted}
    row = lake.run(store.read_sql(__file__, "parent_attempt"), named).one()
    if row is not None:
        return row
    kernel_id = store.find_kernel(lake, wanted, "attempt or kernel")
    named = {"task_id": task_id, "kernel_id": kernel_id}
    row = lake.run(store.read_sql(__file__, "parent_kernel"), named).one()
    if row is None:
        raise UnknownName(
            f"kernel {kernel_id[:12]} is no attempt at this task",
            "list_attempts names the attempts at a task.",
        )
    return row


def _count_steps(lake: Lake, session_id: str) -> tuple[int, int]:
    """Return the number of steps and of attempts of a session; raises UnknownName."""
    row = lake.run(store.read_sql(__file__, "session"), {"session_id": session_id}).one()
    if row is None:
        raise UnknownName(
            f'no session "{session_id}"', "Leave the session out; the answer names a new one."
        )
    return row["steps"], row["turns"]


def _make_kernel_row(code: str) -> dict[str, Any]:
    entry_point = choose_stored(code)
    return {
        "kernel_id": store.ids.kernel_id({PATH: code}, PATH, entry_point),
        "code": code,
        "path": PATH,
        "entry_point": entry_point,
        "source": SOURCE,
    }


def _extract_features(kernel: Mapping[str, Any]) -> list[dict[str, Any]]:
    import pyarrow as pa

    from store import catalog, extract_features

    schema = catalog.load().table("kernels").arrow_schema
    names = ("kernel_id", "code", "path", "other_files")
    wanted = pa.schema([schema.field(name) for name in names])
    return extract_features(
        pa.Table.from_pylist([{name: kernel.get(name) for name in names}], schema=wanted)
    ).to_pylist()


def _make_prompt_row(prompt: IssuedPrompt) -> dict[str, Any]:
    return {
        "prompt_id": prompt.prompt_id,
        "messages": prompt.messages,
        "template_hash": prompt.template_hash,
        "task_id": prompt.task_id,
        "purpose": prompt.purpose,
    }


def _describe_prompt(prompt: IssuedPrompt | None) -> dict[str, Any]:
    if prompt is None:
        return {}
    return {
        "prompt_id": prompt.prompt_id,
        "exemplar_kernel_ids": list(prompt.exemplar_kernel_ids),
        "exemplar_scores": list(prompt.exemplar_scores),
        "lake_id": prompt.lake_id,
        "snapshot_id": prompt.snapshot_id,
    }
