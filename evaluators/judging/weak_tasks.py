"""Weak tasks: tasks that a weak answer passes. Importing this module loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.references.task import Reference

VERSION = 2
"""Version of the rules in `weak_answers`; a new version audits every task again."""


_INPUT_COPIES, _ANSWER_COPIES = 7, 14
"""Bytes that an audit takes for a byte of inputs and of the answer: both processes hold them, in
double precision as well, and the judge compares them with several weak answers."""


def build_audit_row(task: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    """Return the row of `task_audits` for a task of pending_tasks.sql.

    task: with `free_bytes` of the machine's memory; a GPU refuses what it has no room for.

    Raises ReferenceFailed, also for a task that is too large for the memory.
    """
    from evaluators.judging.weak_answers import audit_task

    reference = bench.open_reference(task["task_code"], json.loads(task["axes"]))
    if bench.device == "cpu":
        _check_memory(reference, task["free_bytes"])
    audit = audit_task(reference)
    return {
        "task_id": task["task_id"],
        "workload_id": task["workload_id"],
        "auditor_version": VERSION,
        "device_id": bench.row["device_id"],
        "passes": audit.passes,
        "weak": bool(audit.passes),
        "repeatable": audit.repeatable,
        "created_at": datetime.now(UTC).isoformat(),
    }


def _check_memory(reference: Reference, free_bytes: int) -> None:
    """Raise ReferenceFailed where a task is too large to be audited in the memory."""
    from evaluators.references.task import ReferenceFailed

    known = reference.count_bytes()
    if known is None:
        return
    inputs, answer = known
    needed = _INPUT_COPIES * inputs + _ANSWER_COPIES * answer
    if needed > free_bytes:
        sizes = f"inputs of {inputs / 1e9:.1f} GB and an answer of {answer / 1e9:.1f} GB"
        raise ReferenceFailed(
            f"too large: {sizes} take about {needed / 1e9:.0f} GB, and"
            f" {free_bytes / 1e9:.0f} GB are free"
        )
