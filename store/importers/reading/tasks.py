"""Finds the tasks of a lake that a source names."""

from __future__ import annotations

import store
from store.dossier.names import find_task
from store.errors import ImportFailed


def find_optional(lake: store.Lake, wanted: str | None) -> str | None:
    """Return the id of the task that an option names, or None without the option."""
    return None if wanted is None else find_task(lake, wanted)["task_id"]


class SuiteTasks:
    """The tasks of one revision of a suite, by level and number, by name and by title."""

    def __init__(self, lake: store.Lake, suite: str, revision: str | None) -> None:
        self._by_number: dict[tuple[int | None, int | None], set[str]] = {}
        self._by_name: dict[str, set[str]] = {}
        if revision is None:
            return
        rows = lake.run(
            "SELECT level, problem_id, name, title, task_id FROM task_labels "
            "WHERE suite = $1 AND suite_revision = $2",
            [suite, revision],
        ).rows()
        if not rows:
            raise ImportFailed(
                f"the lake has no tasks of {suite} {revision}",
                f"Import them first, such as: store import {suite} CHECKOUT --revision {revision}",
            )
        for row in rows:
            key = (row["level"], row["problem_id"])
            self._by_number.setdefault(key, set()).add(row["task_id"])
            for name in (row["name"], row["title"]):
                if name is not None:
                    self._by_name.setdefault(str(name), set()).add(row["task_id"])

    def find_number(self, level: int, problem_id: int) -> str | None:
        """Return the task of a level and number, or None if there is none or more than one."""
        return _only(self._by_number.get((level, problem_id)))

    def find_name(self, name: str) -> str | None:
        """Return the task with a name or title, or None if there is none or more than one."""
        return _only(self._by_name.get(name))


def _only(found: set[str] | None) -> str | None:
    return next(iter(found)) if found is not None and len(found) == 1 else None
