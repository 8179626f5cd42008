"""Rows of an attempt that an agent submits: its kernel, author, session, parent and prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import store
from evaluators.service.submission import extract_row_features
from store.code.entry_points import choose_stored
from store.errors import FlywheelError, UnknownName
from store.mcp.lake_tools import IssuedPrompt

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
    parent: Mapping[str, Any] = {"session_id": None, "generation_id": None}
    if submission.parent is not None:
        parent = _find_parent(lake, task_id, submission.parent)
    session_id: str | None = submission.session or parent["session_id"]
    is_new, steps, turns = session_id is None, 0, 0
    if session_id is None:
        session_id = store.ids.uuid7()
    else:
        row = lake.run(store.read_sql(__file__, "session"), {"session_id": session_id}).one()
        if row is None:
            raise UnknownName(
                f'no session "{session_id}"', "Leave the session out; the answer names a new one."
            )
        steps, turns = row["steps"], row["turns"]
    entry_point = choose_stored(submission.code)
    kernel = {
        "kernel_id": store.ids.kernel_id({PATH: submission.code}, PATH, entry_point),
        "code": submission.code,
        "path": PATH,
        "entry_point": entry_point,
        "source": SOURCE,
    }
    attempt = Attempt(
        generation_id=store.ids.uuid7(),
        kernel_id=kernel["kernel_id"],
        task_id=task_id,
        session_id=session_id,
        turn=turns,
        parent_generation_id=parent["generation_id"],
    )
    policy_id = submission.author.strip()
    shared = {"run_id": run_id, "policy_id": policy_id, "task_id": task_id, "source": SOURCE}
    generation = {
        "generation_id": attempt.generation_id,
        "kernel_id": attempt.kernel_id,
        "trajectory_id": session_id,
        "turn": turns,
        "parent_generation_id": attempt.parent_generation_id,
        "design": submission.note,
        **shared,
    }
    prompts: list[dict[str, Any]] = []
    if (prompt := submission.prompt) is not None:
        generation |= {
            "prompt_id": prompt.prompt_id,
            "exemplar_kernel_ids": list(prompt.exemplar_kernel_ids),
            "exemplar_scores": list(prompt.exemplar_scores),
            "lake_id": prompt.lake_id,
            "snapshot_id": prompt.snapshot_id,
        }
        names = ("prompt_id", "messages", "template_hash", "task_id", "purpose")
        prompts = [{name: getattr(prompt, name) for name in names}]
    step = {
        "session_id": session_id,
        "step": steps,
        "role": "assistant",
        "content": submission.note,
        "model": policy_id,
        "generation_id": attempt.generation_id,
    }
    session = {"session_id": session_id, "harness": submission.client, **shared}
    return attempt, {
        "policies": [{"policy_id": policy_id, "name": policy_id, "kind": "model"}],
        "kernels": [kernel],
        "kernel_features": extract_row_features([kernel]),
        "sessions": [session] if is_new else [],
        "prompts": prompts,
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
