"""Weak tasks: tasks that a weak answer passes. Importing this module loads no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench

VERSION = 1
"""Version of the rules in `weak_answers`; a new version audits every task again."""


def build_audit_row(task: Mapping[str, str], bench: Bench) -> dict[str, Any]:
    """Return the row of `task_audits` for a task of tasks_pending.sql. Raises ReferenceFailed."""
    from evaluators.judging.weak_answers import audit_task

    audit = audit_task(bench.open_reference(task["task_code"], json.loads(task["axes"])))
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
