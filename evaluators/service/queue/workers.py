"""The workers of a service and the devices that they bring."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from evaluators.service.queue.database import Database
from store.ids import uuid7


class Workers:
    """The workers of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def join(self, token: str, host: str, devices: Sequence[Mapping[str, Any]]) -> str:
        """Store a worker with its devices, which are of one class; return its new id."""
        worker_id, now = uuid7(), time.time()
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO workers (worker_id, token, host, device_class, seen_at)"
                " VALUES (?, ?, ?, ?, ?)",
                [worker_id, token, host, devices[0]["name"], now],
            )
            for row in devices:
                connection.execute(
                    'INSERT INTO devices (device_id, device_class, "row", worker_id)'
                    " VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET worker_id = excluded.worker_id, quarantine = NULL",
                    [row["device_id"], row["name"], json.dumps(row), worker_id],
                )
        return worker_id

    def find(self, worker_id: str, token: str) -> dict[str, Any] | None:
        """Return the row of a worker that joined with this token, or None."""
        rows = self._database.read(
            "SELECT * FROM workers WHERE worker_id = ? AND token = ?", [worker_id, token]
        )
        return dict(rows[0]) if rows else None

    def list_classes(self) -> dict[str, str]:
        """Return the kind of every device class that workers have brought."""
        rows = self._database.read('SELECT device_class, "row" FROM devices')
        return {row["device_class"]: json.loads(row["row"])["kind"] for row in rows}

    def list_devices(self) -> list[dict[str, Any]]:
        """Return all devices, with their rows and whether a worker has them."""
        rows = self._database.read("SELECT * FROM devices ORDER BY device_class, device_id")
        return [dict(row) | {"row": json.loads(row["row"])} for row in rows]

    def list_all(self) -> list[dict[str, Any]]:
        """Return all workers, with the number of their claims."""
        rows = self._database.read(
            "SELECT workers.*, (SELECT count(*) FROM judgements WHERE state = 'claimed'"
            " AND judgements.worker_id = workers.worker_id) AS claims FROM workers"
        )
        return [dict(row) for row in rows]

    def mark_recorded(self, device_ids: Sequence[str]) -> None:
        """Note that the lake has the rows of devices."""
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE devices SET recorded = 1 WHERE device_id = ?",
                [[device_id] for device_id in device_ids],
            )
