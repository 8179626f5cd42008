"""What the service reads from the lake for clients: tasks, and the rows of a verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import store
from evaluators.service.submission import Refused
from store import read_sql
from store.dossier.names import TaskNames, read_task_names
from store.errors import UnknownName

_FRESH_S = 1.0
"""Seconds during which a task that is unknown is not looked for again."""
_ROWS = {
    "evaluations": "SELECT * EXCLUDE (run_id) FROM evaluations WHERE evaluation_id = $id",
    "timings": "SELECT * FROM timings WHERE evaluation_id = $id",
    "findings": "SELECT * EXCLUDE (run_id) FROM findings WHERE evaluation_id = $id",
    "devices": "SELECT * FROM devices WHERE device_id IN"
    " (SELECT device_id FROM evaluations WHERE evaluation_id = $id)",
}


class LakeReads:
    """Reads of one lake, each at its newest snapshot. Its methods may run in any thread."""

    def __init__(self, location: store.Location) -> None:
        self._location = location
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._names = TaskNames()
        self._read_at = -_FRESH_S

    def find_known(self, text: str) -> str | None:
        """Return the id of a task that is known without reading the lake, or None."""
        matches = self._names.match(text)
        return matches[0]["task_id"] if len(matches) == 1 else None

    def find_task(self, text: str) -> str:
        """Return the id of a task as `store.find_task` finds it.

        Raises:
            Refused: no such task (404), or several (422).
        """
        if not self._names.match(text):
            self._read_tasks()
        names = self._names
        try:
            return names.find(text)["task_id"]
        except UnknownName as error:
            refusal = (422, "ambiguous_task") if names.match(text) else (404, "unknown_task")
            raise Refused(*refusal, error.message, error.hint) from error

    def list_tasks(self, suite: str | None, after: int, most: int) -> list[dict[str, Any]]:
        """Return tasks of a suite (None for all) from a position on."""
        self._read_tasks()
        rows = [row for row in self._tasks.values() if suite in (None, row["suite"])]
        return rows[after : after + most]

    def read_task(self, task_id: str) -> dict[str, Any]:
        """Return a task with its text."""
        with store.open(self._location.url) as lake:
            row = lake.run("SELECT code FROM tasks WHERE task_id = $id", {"id": task_id}).one()
        return self._tasks[task_id] | {"code": row["code"] if row is not None else None}

    def read_rows(self, evaluation_id: str) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return the rows of an evaluation by table: its samples, findings and device."""
        with store.open(self._location.url) as lake:
            return {
                name: lake.run(sql, {"id": evaluation_id}).rows() for name, sql in _ROWS.items()
            }

    def _read_tasks(self) -> None:
        """Read all tasks again, unless that was just done."""
        with self._lock:
            if time.monotonic() - self._read_at < _FRESH_S:
                return
            with store.open(self._location.url) as lake:
                rows = lake.run(read_sql(__file__, "tasks")).rows()
                names = read_task_names(lake)
            self._tasks = {row["task_id"]: row for row in rows}
            self._names = names
            self._read_at = time.monotonic()
