"""Judgments as clients see them: submit, look up, withdraw; and what the lake says of them."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from evaluators.judging.case import Case
from evaluators.service.queue.database import Database
from evaluators.service.queue.submission import Refused, Submission
from store.ids import content_id

LIVE = ("new", "queued", "claimed", "answered")
"""States of a judgment that has not ended."""
_LIVE = ", ".join(f"'{state}'" for state in LIVE)
_STATUSES = {"new": "queued", "answered": "running"}
_LONGEST_PAUSE_S = 60.0
KEPT_S = 7 * 86_400.0
"""Seconds that the queue keeps a judgment that has ended; the lake keeps its verdict."""

Row: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A submission whose task and device class are known."""

    submission: Submission
    task_id: str
    device_class: str
    policy: str | None
    evaluator: str
    """Name and version."""
    judge_limit_s: float

    @property
    def judgement_id(self) -> str:
        """The same for the same task, kernel bytes, policy, evaluator version and device class."""
        return content_id(
            "judgement",
            self.task_id,
            self.submission.kernel_id,
            self.policy,
            self.evaluator,
            self.device_class,
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the lake's thread decides about one judgment."""

    judgement_id: str
    state: Literal["queued", "done", "fault"]
    case: Case | None = None
    verdict: Row | None = None
    fresh: bool = False
    reason: str | None = None
    message: str | None = None
    is_retry: bool = False
    """Whether the judge has failed on it before."""


class Judgements:
    """The judgments of one database."""

    def __init__(self, database: Database, most: int) -> None:
        """Take the file, and the number of judgments that may wait."""
        self._database = database
        self._most = most
        self.on_change: Callable[[Sequence[str]], None] = lambda _: None
        """Called, from any thread, with the ids of judgments whose state has changed."""

    def submit(self, client: str, tickets: Sequence[Ticket]) -> list[str]:
        """Store requests durably and return their ids; all of them, or none.

        What has ended with a fault is judged again; what is done is not.

        Raises:
            Refused: 429; the queue is full, and this client has its share of it.
        """
        changed: list[str] = []
        ids = [ticket.judgement_id for ticket in tickets]
        rows = self.list_rows(ids)
        if sum(row["state"] == "done" for row in rows) == len(set(ids)):
            return ids
        with self._database.transaction() as connection:
            for ticket in tickets:
                found = connection.execute(
                    "SELECT state FROM judgements WHERE judgement_id = ?", [ticket.judgement_id]
                ).fetchone()
                if found is None or found["state"] in ("fault", "cancelled"):
                    self._check_room(connection, client, len(changed))
                    self._join_shares(connection, client, ticket.device_class)
                    self._insert(connection, ticket)
                    changed.append(ticket.judgement_id)
                self._add_request(connection, client, ticket)
        if changed:
            self.on_change(changed)
        return ids

    def read(self, judgement_ids: Sequence[str]) -> dict[str, Row]:
        """Return the public form of judgments by id; unknown ids are left out."""
        marks = ", ".join("?" * len(judgement_ids))
        rows = self._database.read(
            f"SELECT * FROM judgements WHERE judgement_id IN ({marks})", list(judgement_ids)
        )
        return {row["judgement_id"]: _describe(dict(row)) for row in rows}

    def find_stale(self, judgement_ids: Sequence[str], oldest_s: float) -> list[str]:
        """Return those that are done and whose verdict was read from the lake before a time."""
        marks = ", ".join("?" * len(judgement_ids))
        rows = self._database.read(
            f"SELECT judgement_id FROM judgements WHERE judgement_id IN ({marks})"
            " AND state = 'done' AND read_at < ?",
            [*judgement_ids, oldest_s],
        )
        return [row["judgement_id"] for row in rows]

    def find_live(self) -> set[str]:
        """Return the ids of all judgments that have not ended."""
        rows = self._database.read(f"SELECT judgement_id FROM judgements WHERE state IN ({_LIVE})")
        return {row["judgement_id"] for row in rows}

    def withdraw(self, client: str, judgement_id: str) -> bool:
        """Withdraw a client's request; cancel what nobody else waits for and no judge has.

        Returns whether the client had asked for it.
        """
        with self._database.transaction() as connection:
            mine = connection.execute(
                "DELETE FROM requests WHERE judgement_id = ? AND client = ?", [judgement_id, client]
            ).rowcount
            if not mine:
                return False
            cancelled = connection.execute(
                "UPDATE judgements SET state = 'cancelled', finished_at = ?, kernel = NULL,"
                " \"case\" = NULL WHERE judgement_id = ? AND state IN ('new', 'queued') AND NOT"
                " EXISTS (SELECT 1 FROM requests WHERE requests.judgement_id = ?)",
                [time.time(), judgement_id, judgement_id],
            ).rowcount
        if cancelled:
            self.on_change([judgement_id])
        return True

    def list_in(self, state: str, most: int, after: int = 0) -> list[Row]:
        """Return the oldest judgments in a state, with their columns and one client each.

        With `after`, the oldest of those with a higher `sequence`.
        """
        rows = self._database.read(
            "SELECT judgements.*, (SELECT min(client) FROM requests WHERE"
            " requests.judgement_id = judgements.judgement_id) AS client"
            " FROM judgements WHERE state = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            [state, after, most],
        )
        return [dict(row) for row in rows]

    def list_rows(self, judgement_ids: Sequence[str]) -> list[Row]:
        """Return the columns of judgments."""
        marks = ", ".join("?" * len(judgement_ids))
        rows = self._database.read(
            f"SELECT * FROM judgements WHERE judgement_id IN ({marks})", list(judgement_ids)
        )
        return [dict(row) for row in rows]

    def settle(self, outcomes: Iterable[Outcome]) -> None:
        """Store what the lake's thread has decided, in one transaction."""
        now = time.time()
        settled: list[str] = []
        with self._database.transaction() as connection:
            for one in outcomes:
                settled.append(one.judgement_id)
                if one.state == "queued":
                    case = None if one.case is None else json.dumps(one.case.write())
                    connection.execute(
                        "UPDATE judgements SET state = 'queued', \"case\" = ?, answer = NULL,"
                        " lease = NULL, worker_id = NULL, started_at = NULL, tries = tries + ?"
                        " WHERE judgement_id = ? AND state IN ('new', 'answered')",
                        [case, int(one.is_retry), one.judgement_id],
                    )
                    continue
                connection.execute(
                    "UPDATE judgements SET state = ?, verdict = ?, reason = ?, message = ?,"
                    " fresh = ?, read_at = ?, finished_at = coalesce(finished_at, ?),"
                    ' kernel = NULL, "case" = NULL, answer = NULL, lease = NULL'
                    " WHERE judgement_id = ? AND state IN ('new', 'answered', 'done')",
                    [
                        one.state,
                        None if one.verdict is None else json.dumps(one.verdict),
                        one.reason,
                        one.message,
                        int(one.fresh),
                        now,
                        now,
                        one.judgement_id,
                    ],
                )
        if settled:
            self.on_change(settled)

    def count_waiting(self) -> list[Row]:
        """Return the number of judgments that have not ended, by device class and state."""
        rows = self._database.read(
            f"SELECT device_class, state, count(*) AS n FROM judgements WHERE state IN ({_LIVE})"
            " GROUP BY device_class, state"
        )
        return [dict(row) for row in rows]

    def prune(self) -> None:
        """Delete what ended long ago."""
        with self._database.transaction() as connection:
            connection.execute(
                f"DELETE FROM judgements WHERE state NOT IN ({_LIVE}) AND finished_at < ?",
                [time.time() - KEPT_S],
            )

    def _check_room(self, connection: sqlite3.Connection, client: str, added: int) -> None:
        """Raise Refused where the queue is full and the client has its share of it.

        A client below its share is served even then, so that nobody can lock others out.
        """
        waiting = connection.execute(
            f"SELECT count(*) FROM judgements WHERE state IN ({_LIVE})"
        ).fetchone()[0]
        if waiting < self._most:
            return
        shares = connection.execute(
            "SELECT requests.client, count(*) AS n FROM judgements INNER JOIN requests USING"
            f" (judgement_id) WHERE state IN ({_LIVE}) GROUP BY requests.client"
        ).fetchall()
        counts = {row["client"]: row["n"] for row in shares}
        others = len(counts.keys() | {client})
        if counts.get(client, 0) + added < self._most // others:
            return
        refused = Refused(
            429,
            "queue_full",
            f"{waiting} judgements wait, and the queue takes {self._most}",
            "Send it again after the seconds in Retry-After.",
        )
        refused.retry_after_s = _estimate_pause_s(connection)
        raise refused

    def _join_shares(self, connection: sqlite3.Connection, client: str, device_class: str) -> None:
        """Let a client that had nothing to judge start level with the others.

        Idle time earns no credit, and a newcomer owes nothing.
        """
        active = connection.execute(
            "SELECT requests.client, min(coalesce(used_s, 0)) AS used_s FROM judgements"
            " INNER JOIN requests USING (judgement_id)"
            " LEFT JOIN shares ON shares.client = requests.client"
            " AND shares.device_class = judgements.device_class"
            f" WHERE state IN ({_LIVE}) AND judgements.device_class = ? GROUP BY requests.client",
            [device_class],
        ).fetchall()
        if any(row["client"] == client for row in active):
            return
        level = min((row["used_s"] for row in active), default=0.0)
        connection.execute(
            "INSERT INTO shares VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
            " SET used_s = max(used_s, excluded.used_s)",
            [client, device_class, level],
        )

    def _insert(self, connection: sqlite3.Connection, ticket: Ticket) -> None:
        connection.execute("DELETE FROM judgements WHERE judgement_id = ?", [ticket.judgement_id])
        connection.execute(
            "INSERT INTO judgements (judgement_id, task_id, kernel_id, device_class, policy, state,"
            " kernel, submitted_at, queue_limit_s, judge_limit_s)"
            " VALUES (?, ?, ?, ?, ?, 'new', ?, ?, ?, ?)",
            [
                ticket.judgement_id,
                ticket.task_id,
                ticket.submission.kernel_id,
                ticket.device_class,
                ticket.policy,
                json.dumps(ticket.submission.kernel),
                time.time(),
                ticket.submission.queue_limit_s,
                ticket.judge_limit_s,
            ],
        )

    def _add_request(self, connection: sqlite3.Connection, client: str, ticket: Ticket) -> None:
        connection.execute(
            "INSERT INTO requests VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
            " SET priority = max(priority, excluded.priority)",
            [ticket.judgement_id, client, ticket.submission.priority],
        )
        connection.execute(
            "UPDATE judgements SET queue_limit_s = max(queue_limit_s, ?),"
            " judge_limit_s = max(judge_limit_s, ?) WHERE judgement_id = ?",
            [ticket.submission.queue_limit_s, ticket.judge_limit_s, ticket.judgement_id],
        )


def _estimate_pause_s(connection: sqlite3.Connection) -> int:
    """Return after how many seconds a full queue has had time to shrink by a few judgments."""
    row = connection.execute("SELECT value FROM counters WHERE name = 'mean_judged_s'").fetchone()
    mean_s = row["value"] if row is not None else 1.0
    return math.ceil(min(max(2 * mean_s, 1.0), _LONGEST_PAUSE_S))


def _describe(row: Mapping[str, Any]) -> Row:
    """Return the public form of a judgment, with both of its clocks."""
    state = row["state"]
    begun, now = row["started_at"], time.time()
    status = _STATUSES.get(state, state)
    if state == "claimed":
        status = "queued" if begun is None else "running"
    end = begun or row["finished_at"] or now
    judged = now - begun if begun is not None and state == "claimed" else row["judged_s"]
    return {
        "id": row["judgement_id"],
        "status": status,
        "task_id": row["task_id"],
        "kernel_id": row["kernel_id"],
        "device_class": row["device_class"],
        "policy": row["policy"],
        "verdict": None if row["verdict"] is None else json.loads(row["verdict"]),
        "fresh": bool(row["fresh"]),
        "fault": {"reason": row["reason"], "message": row["message"]} if row["reason"] else None,
        "queued_s": round(max(end - row["submitted_at"], 0.0), 3),
        "judged_s": None if judged is None else round(judged, 3),
        "submitted_at": row["submitted_at"],
        "finished_at": row["finished_at"],
    }
