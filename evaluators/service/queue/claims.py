"""Judgments as workers see them: claim, keep alive, answer; and what is lost or late.

A claim is a lease: only the worker that holds its secret may answer, and an answer is taken once.
A worker that is not heard of for LEASE_S loses its claims, which go to other workers.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluators.service.queue.database import Database
from store import read_sql

LEASE_S = 30.0
"""Seconds without a sign of life after which a worker's claims go to others."""
MOST_LOSSES = 5
"""Workers that may end with a judgment in hand before it is given up."""
MOST_REFUSED = 5
"""Refused answers in a row after which a worker gets no more cases."""
_PATIENCE_S = 30.0
_PLENTY = 2
"""Queued cases per device beyond which workers take some ahead."""
_WEIGHT = 0.1
_FIRST_GUESS_S = 1.0


@dataclass(frozen=True)
class Claim:
    """A case that a worker has."""

    judgement_id: str
    lease: str
    case: dict[str, Any]


class Claims:
    """The claims of workers in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.on_change: Callable[[Sequence[str]], None] = lambda _: None
        """Called, from any thread, with the ids of judgments whose state has changed."""

    def claim(self, worker_id: str, capacity: int, ahead: int, loaded: str | None) -> list[Claim]:
        """Lease cases to a worker, each time of the client that was served least.

        Args:
            worker_id: The worker.
            capacity: Number of its judges that are idle.
            ahead: Further cases that it would prepare. It gets them only while there are plenty, so
                that no case waits behind another one while a judge elsewhere is idle.
            loaded: Task that one of its judges has loaded.
        """
        claims: list[Claim] = []
        with self._database.transaction() as connection:
            worker = connection.execute(
                "SELECT * FROM workers WHERE worker_id = ?", [worker_id]
            ).fetchone()
            connection.execute(
                "UPDATE workers SET seen_at = ? WHERE worker_id = ?", [time.time(), worker_id]
            )
            if worker is None or worker["refused"] >= MOST_REFUSED:
                return []
            mean_s = _read_mean(connection)
            queued, devices = connection.execute(
                "SELECT (SELECT count(*) FROM judgements WHERE state = 'queued' AND device_class ="
                " :name), (SELECT count(*) FROM devices WHERE device_class = :name)",
                {"name": worker["device_class"]},
            ).fetchone()
            spare = max(queued - capacity - _PLENTY * devices, 0)
            while len(claims) < capacity + min(ahead, spare):
                one = self._claim_one(connection, worker, loaded, mean_s)
                if one is None:
                    break
                claims.append(one)
        return claims

    def keep_alive(
        self, worker_id: str, running: Sequence[str], quarantine: Mapping[str, str | None]
    ) -> list[str]:
        """Extend a worker's leases; note what its judges work on and which devices are sick.

        Returns the ids of the judgments that it still has.
        """
        now, begun = time.time(), list[str]()
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE workers SET seen_at = ? WHERE worker_id = ?", [now, worker_id]
            )
            connection.execute(
                "UPDATE judgements SET lease_until = ? WHERE worker_id = ? AND state = 'claimed'",
                [now + LEASE_S, worker_id],
            )
            for judgement_id in running:
                begun += [judgement_id] * connection.execute(
                    "UPDATE judgements SET started_at = ? WHERE judgement_id = ? AND worker_id = ?"
                    " AND state = 'claimed' AND started_at IS NULL",
                    [now, judgement_id, worker_id],
                ).rowcount
            for device_id, why in quarantine.items():
                connection.execute(
                    "UPDATE devices SET quarantine = ? WHERE device_id = ? AND worker_id = ?",
                    [why, device_id, worker_id],
                )
            mine = connection.execute(
                "SELECT judgement_id FROM judgements WHERE worker_id = ? AND state = 'claimed'",
                [worker_id],
            ).fetchall()
        if begun:
            self.on_change(begun)
        return [row["judgement_id"] for row in mine]

    def find_claimed(self, worker_id: str, judgement_id: str, lease: str) -> dict[str, Any] | None:
        """Return the row of a judgment that a worker may still answer, or None.

        A judgment whose time is over is still answered by the worker that has it.
        """
        rows = self._database.read(
            "SELECT * FROM judgements WHERE judgement_id = ? AND worker_id = ? AND lease = ?"
            " AND state IN ('claimed', 'fault')",
            [judgement_id, worker_id, lease],
        )
        return dict(rows[0]) if rows else None

    def answer(
        self, judgement: Mapping[str, Any], answer: Mapping[str, Any], *, refused: bool
    ) -> bool:
        """Store a worker's answer durably; return whether it is the one that counts.

        Args:
            judgement: Row of `find_claimed`.
            answer: Accepted rows (`tables`), `device_id`, and `judged_s`.
            refused: Whether the rows were refused and replaced by a fault.
        """
        judged_s, now = float(answer["judged_s"]), time.time()
        with self._database.transaction() as connection:
            taken = connection.execute(
                "UPDATE judgements SET state = 'answered', answer = ?, judged_s = ?,"
                " started_at = ?, finished_at = NULL, reason = NULL, message = NULL"
                " WHERE judgement_id = ? AND lease = ? AND state IN ('claimed', 'fault')",
                [
                    json.dumps(answer),
                    judged_s,
                    max(now - judged_s, judgement["submitted_at"]),
                    judgement["judgement_id"],
                    judgement["lease"],
                ],
            ).rowcount
            if not taken:
                return False
            connection.execute(
                "UPDATE shares SET used_s = used_s + ? WHERE client = ? AND device_class = ?",
                [
                    judged_s - judgement["charged_s"],
                    judgement["charged_to"],
                    judgement["device_class"],
                ],
            )
            connection.execute(
                "UPDATE workers SET refused = CASE WHEN ? THEN refused + 1 ELSE 0 END"
                " WHERE worker_id = ?",
                [refused, judgement["worker_id"]],
            )
            mean_s = _read_mean(connection)
            connection.execute(
                "INSERT INTO counters VALUES ('mean_judged_s', ?)"
                " ON CONFLICT DO UPDATE SET value = excluded.value",
                [mean_s + _WEIGHT * (judged_s - mean_s)],
            )
            _count(connection, "answers_refused" if refused else "answers")
            _count(connection, "judged_s", judged_s)
        self.on_change([judgement["judgement_id"]])
        return True

    def release_unknown(self, worker_id: str, holding: Sequence[str]) -> None:
        """Give claims to others that a worker does not know of: the reply to it was lost."""
        rows = self._database.read(
            "SELECT judgement_id FROM judgements WHERE state = 'claimed' AND worker_id = ?",
            [worker_id],
        )
        for judgement_id in {row["judgement_id"] for row in rows} - set(holding):
            self._release("judgement_id = :given", judgement_id, lost=False)

    def release(self, worker_id: str, *, lost: bool) -> None:
        """Give a worker's claims to others.

        Args:
            worker_id: The worker.
            lost: Whether the worker has ended; what several workers are lost with is given up.
        """
        self._release("worker_id = :given", worker_id, lost=lost)

    def leave(self, worker_id: str, *, lost: bool) -> None:
        """Forget a worker that has ended."""
        self.release(worker_id, lost=lost)
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE devices SET worker_id = NULL WHERE worker_id = ?", [worker_id]
            )
            connection.execute("DELETE FROM workers WHERE worker_id = ?", [worker_id])

    def leave_all(self, token: str, lost: bool) -> None:
        """Forget the workers that joined with a token, as `leave` does."""
        for row in self._database.read("SELECT worker_id FROM workers WHERE token = ?", [token]):
            self.leave(row["worker_id"], lost=lost)

    def recover(self) -> None:
        """After a restart: check what is queued against the lake again, and wait for workers."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE judgements SET state = 'new' WHERE state = 'queued'")
            until = time.time() + LEASE_S
            connection.execute("UPDATE judgements SET lease_until = ?", [until])
            connection.execute("UPDATE workers SET seen_at = ?", [time.time()])

    def expire(self) -> None:
        """Take claims from silent workers; give up what waits or is judged for too long."""
        now = time.time()
        self._release("lease_until < :given", now, lost=True)
        for row in self._database.read(
            "SELECT worker_id FROM workers WHERE seen_at < ?", [now - LEASE_S]
        ):
            self.leave(row["worker_id"], lost=True)
        late: list[str] = []
        with self._database.transaction() as connection:
            for condition, reason, limit in (
                ("state IN ('new', 'queued') AND submitted_at + queue_limit_s < :now",
                 "queue_deadline", "queue_limit_s"),
                ("state = 'claimed' AND started_at + judge_limit_s < :now",
                 "judge_deadline", "judge_limit_s"),
            ):  # fmt: skip
                rows = connection.execute(
                    "UPDATE judgements SET state = 'fault', reason = :reason, finished_at = :now,"
                    f" message = 'no verdict within ' || {limit} || ' s' WHERE {condition}"
                    " RETURNING judgement_id",
                    {"now": now, "reason": reason},
                ).fetchall()
                late += [row["judgement_id"] for row in rows]
        if late:
            self.on_change(late)

    def read_counters(self) -> dict[str, float]:
        """Return the totals since the queue was created."""
        return {row["name"]: row["value"] for row in self._database.read("SELECT * FROM counters")}

    def _claim_one(
        self, connection: sqlite3.Connection, worker: sqlite3.Row, loaded: str | None, mean_s: float
    ) -> Claim | None:
        wanted = {"device_class": worker["device_class"]}
        client = connection.execute(read_sql(__file__, "next_client"), wanted).fetchone()
        if client is None:
            return None
        now, lease = time.time(), secrets.token_hex(16)
        wanted |= {"client": client["client"], "loaded": loaded, "long_ago": now - _PATIENCE_S}
        row = connection.execute(read_sql(__file__, "next_judgement"), wanted).fetchone()
        connection.execute(
            "UPDATE judgements SET state = 'claimed', worker_id = ?, lease = ?, lease_until = ?,"
            " started_at = NULL, charged_to = ?, charged_s = ? WHERE judgement_id = ?",
            [
                worker["worker_id"],
                lease,
                now + LEASE_S,
                client["client"],
                mean_s,
                row["judgement_id"],
            ],
        )
        connection.execute(
            "INSERT INTO shares VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET used_s = used_s + excluded.used_s",
            [client["client"], worker["device_class"], mean_s],
        )
        return Claim(row["judgement_id"], lease, json.loads(row["case"]))

    def _release(self, condition: str, given: str | float, *, lost: bool) -> None:
        with self._database.transaction() as connection:
            rows = connection.execute(
                "UPDATE judgements SET state = 'queued', worker_id = NULL, lease = NULL,"
                " losses = losses + (:lost AND started_at IS NOT NULL), started_at = NULL"
                f" WHERE state = 'claimed' AND {condition} RETURNING judgement_id",
                {"lost": lost, "given": given},
            ).fetchall()
            connection.execute(
                "UPDATE judgements SET state = 'fault', reason = 'worker_lost', finished_at = ?,"
                " message = losses || ' workers ended while they judged it'"
                " WHERE state = 'queued' AND losses >= ?",
                [time.time(), MOST_LOSSES],
            )
            _count(connection, "claims_lost", len(rows) * lost)
        if rows:
            self.on_change([row["judgement_id"] for row in rows])


def _read_mean(connection: sqlite3.Connection) -> float:
    """Return the moving average of the seconds of a judgment."""
    row = connection.execute("SELECT value FROM counters WHERE name = 'mean_judged_s'").fetchone()
    return row["value"] if row is not None else _FIRST_GUESS_S


def _count(connection: sqlite3.Connection, name: str, by: float = 1) -> None:
    connection.execute(
        "INSERT INTO counters VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET value = value + excluded.value",
        [name, by],
    )
