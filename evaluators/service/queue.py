"""The durable queue of a judge service: a SQLite file beside the lake's own parts on this host.

    new ──recorder──▶ queued ──judges──▶ claimed ──judges──▶ answered ──recorder──▶ done or fault

A judgment is one row. Clients submit, look up and withdraw it; the recorder, which has the lake,
finds its case or its verdict; the judges claim its case and answer it. Every change is one durable
transaction. A server that is killed continues from the file. The file also has the tokens of
clients, as hashes: a command creates one and revokes it at once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast, get_args

import msgspec

import store
from evaluators.judging.case import Case, Precision
from store import faults, read_sql
from store.code.entry_points import choose_stored
from store.code.languages import is_python
from store.errors import FlywheelError, UnknownName
from store.ids import content_id
from store.lake.location import Location

LONGEST_CODE = 400_000
"""Most characters of a kernel, as in a completion."""
MOST_FILES = 32
QUEUE_LIMIT_S = 3600.0
"""Seconds that a judgment waits at most, unless its client says otherwise."""
LONGEST_S = 86_400.0
_Code: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_CODE)]
_Path: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        max_length=200,
        pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*\Z",
    ),
]
"""Relative and plain, such as kernel.py or csrc/kernel.cu."""
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=LONGEST_S)]


class Refused(FlywheelError):
    """A request that cannot be followed; `status` is its HTTP status and `code` its name."""

    retry_after_s: int | None = None
    """Seconds after which it may be sent again."""

    def __init__(self, status: int, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.code = status, code


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A further file of a kernel."""

    path: _Path
    code: _Code


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One request, before its task and device class are looked up."""

    task: Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
    """Id or name of a task, as the client writes it."""
    code: _Code
    path: _Path = "kernel.py"
    files: Annotated[tuple[SourceFile, ...], msgspec.Meta(max_length=MOST_FILES)] | None = None
    precision: Precision | None = msgspec.field(default=None, name="policy")
    """The field `policy`, as precision was called when /v1 began."""
    device_class: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 5
    """Order within the client's own work; higher is sooner."""
    queue_limit_s: _Seconds | None = msgspec.field(default=None, name="queue_s")
    judge_limit_s: _Seconds | None = msgspec.field(default=None, name="judge_s")

    @cached_property
    def kernel(self) -> dict[str, Any]:
        """Row of `kernels`. Raises Refused: the files cannot be those of one kernel."""
        if not is_python(self.path):
            raise refuse_malformed(
                f"{self.path!a:.80} is no Python file, and code is Python",
                "Name it such as kernel.py. Sources that it compiles and loads belong in files.",
            )
        files = {self.path: self.code} | {one.path: one.code for one in self.files or ()}
        if len(files) < 1 + len(self.files or ()):
            raise refuse_malformed("two files have the same path", "Give each file another path.")
        if sum(map(len, files.values())) > LONGEST_CODE:
            raise refuse_malformed(f"the kernel is longer than {LONGEST_CODE} characters")
        others = [{"path": one.path, "code": one.code} for one in self.files or ()]
        entry_point = choose_stored(self.code)
        return {
            "kernel_id": store.ids.kernel_id(files, self.path, entry_point),
            "code": self.code,
            "path": self.path,
            "entry_point": entry_point,
            "other_files": others or None,
            "source": "service",
        }


def parse_submission(value: object) -> Submission:
    """Return the submission in a JSON value. Raises Refused, which names the field."""
    try:
        given = msgspec.convert(value, Submission)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        hint = "GET /v1/openapi.json describes the fields."
        raise refuse_malformed(store.clean_text(f"{error!s:.200}"), hint) from error
    texts = [("task", given.task), ("device_class", given.device_class or "")]
    texts += [("code", given.code), *((one.path, one.code) for one in given.files or ())]
    for name, text in texts:
        if text != store.clean_text(text):
            raise refuse_malformed(f"{name} has a NUL character or half of a surrogate pair")
    _ = given.kernel  # refuses files that cannot be those of one kernel
    return given


def choose_class(wanted: str | None, classes: Mapping[str, str]) -> str:
    """Return the class of devices that a client means. Raises Refused: no such class, or several.

    A client gives the name of a class, a kind (cpu or cuda) if one class is of it, or None if there
    is one class. `classes` has the kind of each.
    """
    if not classes:
        raise Refused(503, "no_devices", "no worker has joined yet", "Try again in some seconds.")
    if wanted is not None and wanted in classes:
        return wanted
    matches = [name for name, kind in classes.items() if wanted in (None, kind)]
    if len(matches) == 1:
        return matches[0]
    what = "several device classes match" if matches else "no such device class"
    known = ", ".join(sorted(classes))
    raise Refused(422, "unknown_device_class", what, f"Give device_class: one of {known}.")


def refuse_malformed(message: str, hint: str | None = None) -> Refused:
    """Return the refusal of a request that has another form than its address takes."""
    return Refused(422, "invalid", message, hint)


FILE = "service.sqlite"
_FORMAT = 2
_WAIT_S = 30.0
LIVE = ("new", "queued", "claimed", "answered")
"""States of a judgment that has not ended."""
_LIVE = ", ".join(f"'{state}'" for state in LIVE)
_STATUSES = {"new": "queued", "answered": "running"}
_LONGEST_PAUSE_S = 60.0
KEPT_S = 7 * 86_400.0
"""Seconds that the queue keeps a judgment that has ended; the lake keeps its verdict."""
MOST_LOSSES = 5
"""Servers that may be killed while they judge a case before it is given up."""
_PATIENCE_S = 30.0
_WEIGHT = 0.1
_FIRST_GUESS_S = 1.0

Row: TypeAlias = "dict[str, Any]"


class Database:
    """A connection to the queue of a lake. Threads take turns; every change is a transaction."""

    def __init__(self, location: Location) -> None:
        """Open the file, and create it with its tables where it is missing.

        Raises FlywheelError: the file is damaged, or belongs to a newer version.
        """
        location.root.mkdir(parents=True, exist_ok=True)
        self.file: Path = location.root / FILE
        # Its kernels and token hashes are for the owner alone.
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                self.file, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, 1, _FORMAT):
                raise FlywheelError(
                    f"{self.file} has format {version}, and this version reads {_FORMAT}",
                    "Use the version that wrote it, or move the file away to start an empty queue.",
                )
            if version == 1:
                self._connection.executescript(read_sql(__file__, "from_format_1"))
            self._connection.executescript(read_sql(__file__, "schema"))
            self._connection.execute(f"PRAGMA user_version = {_FORMAT}")
        except sqlite3.DatabaseError as error:
            faults.raise_unless_damage(error, self.file)
            raise FlywheelError(
                f"{self.file} cannot be used: {error}",
                "Move the file away to start an empty queue; verdicts are in the lake.",
            ) from error

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """Yield the connection in a write transaction, which is durable when the block ends."""
        with self._lock, faults.at(self.file):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def read(self, sql: str, parameters: Any = ()) -> list[Row]:
        """Return the rows of one SELECT."""
        with self._lock:
            return list(map(dict, self._connection.execute(sql, parameters).fetchall()))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._connection.close()


@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A submission whose task and device class are known."""

    submission: Submission
    task_id: str
    device_class: str
    precision: str | None
    evaluator: str
    """Name and version."""
    judge_limit_s: float

    @property
    def judgement_id(self) -> str:
        """The same for the same task, kernel, precision, evaluator version and device class."""
        return content_id(
            "judgement",
            self.task_id,
            self.submission.kernel["kernel_id"],
            self.precision,
            self.evaluator,
            self.device_class,
        )


@dataclass(frozen=True, kw_only=True)
class QueueUpdate:
    """The next state of one judgment, as the recorder decides."""

    judgement_id: str
    state: Literal["queued", "done", "fault"]
    case: Case | None = None
    verdict: Row | None = None
    fresh: bool = False
    reason: str | None = None
    message: str | None = None
    is_retry: bool = False
    """Whether the judge has failed on it before."""


class Queue:
    """The judgments and devices of one database."""

    def __init__(self, database: Database, most: int) -> None:
        """Take the file, and the number of judgments that may wait."""
        self._database = database
        self._most = most
        self.on_change: Callable[[Sequence[str]], None] = lambda _: None
        """Called, from any thread, with the ids of judgments whose state has changed."""
        self._numbers = itertools.count(1)
        self.changes = 0
        """Another number after every change."""

    def _notify(self, judgement_ids: Sequence[str]) -> None:
        if not judgement_ids:
            return
        self.changes = next(self._numbers)
        self.on_change(judgement_ids)

    # What clients do.

    def submit(self, client: str, tickets: Sequence[Ticket]) -> list[str]:
        """Store requests durably and return their ids; all of them, or none.

        What has ended with a fault is judged again; what is done is not.

        Raises Refused: 429; the queue is full, and this client has its share of it.
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
                    connection.execute(
                        "DELETE FROM judgements WHERE judgement_id = ?", [ticket.judgement_id]
                    )
                    connection.execute(
                        "INSERT INTO judgements (judgement_id, task_id, kernel_id, device_class,"
                        " policy, state, kernel, submitted_at, queue_limit_s, judge_limit_s)"
                        " VALUES (?, ?, ?, ?, ?, 'new', ?, ?, 0, 0)",
                        [
                            ticket.judgement_id,
                            ticket.task_id,
                            ticket.submission.kernel["kernel_id"],
                            ticket.device_class,
                            ticket.precision,
                            json.dumps(ticket.submission.kernel),
                            time.time(),
                        ],
                    )
                    changed.append(ticket.judgement_id)
                connection.execute(
                    "INSERT INTO requests VALUES (?, ?, ?) ON CONFLICT DO UPDATE"
                    " SET priority = max(priority, excluded.priority)",
                    [ticket.judgement_id, client, ticket.submission.priority],
                )
                connection.execute(
                    "UPDATE judgements SET queue_limit_s = max(queue_limit_s, ?),"
                    " judge_limit_s = max(judge_limit_s, ?) WHERE judgement_id = ?",
                    [
                        ticket.submission.queue_limit_s or QUEUE_LIMIT_S,
                        ticket.judge_limit_s,
                        ticket.judgement_id,
                    ],
                )
        self._notify(changed)
        return ids

    def read(self, judgement_ids: Sequence[str]) -> dict[str, Row]:
        """Return the public form of judgments by id; unknown ids are left out."""
        return {row["judgement_id"]: _describe(row) for row in self.list_rows(judgement_ids)}

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
            self._notify([judgement_id])
        return True

    # What the recorder does.

    def list_in(self, state: str, most: int) -> list[Row]:
        """Return the oldest judgments in a state, with their columns and one client each."""
        return self._database.read(
            "SELECT judgements.*, (SELECT min(client) FROM requests WHERE"
            " requests.judgement_id = judgements.judgement_id) AS client"
            " FROM judgements WHERE state = ? ORDER BY sequence LIMIT ?",
            [state, most],
        )

    def list_rows(self, judgement_ids: Sequence[str]) -> list[Row]:
        """Return the columns of judgments."""
        marks = ", ".join("?" * len(judgement_ids))
        return self._database.read(
            f"SELECT * FROM judgements WHERE judgement_id IN ({marks})", list(judgement_ids)
        )

    def record_results(self, updates: Sequence[QueueUpdate]) -> None:
        """Store what the recorder has decided, in one transaction."""
        now = time.time()
        with self._database.transaction() as connection:
            for one in updates:
                if one.state == "queued":
                    case = None if one.case is None else json.dumps(one.case.write())
                    connection.execute(
                        "UPDATE judgements SET state = 'queued', \"case\" = ?, answer = NULL,"
                        " started_at = NULL, tries = tries + ?"
                        " WHERE judgement_id = ? AND state IN ('new', 'answered')",
                        [case, int(one.is_retry), one.judgement_id],
                    )
                    continue
                connection.execute(
                    "UPDATE judgements SET state = ?, verdict = ?, reason = ?, message = ?,"
                    " fresh = ?, read_at = ?, finished_at = coalesce(finished_at, ?),"
                    ' kernel = NULL, "case" = NULL, answer = NULL'
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
        self._notify([one.judgement_id for one in updates])

    def count_waiting(self) -> list[Row]:
        """Return the number of judgments that have not ended, by device class and state."""
        return self._database.read(
            f"SELECT device_class, state, count(*) AS n FROM judgements WHERE state IN ({_LIVE})"
            " GROUP BY device_class, state"
        )

    def prune(self) -> None:
        """Delete what ended long ago."""
        with self._database.transaction() as connection:
            connection.execute(
                f"DELETE FROM judgements WHERE state NOT IN ({_LIVE}) AND finished_at < ?",
                [time.time() - KEPT_S],
            )

    # What the judges do.

    def recover(self) -> None:
        """After a start: queue what a killed server judged; check against the lake what waits."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE devices SET is_here = 0")
            lost = connection.execute(
                "UPDATE judgements SET state = 'queued', started_at = NULL,"
                " losses = losses + (started_at IS NOT NULL) WHERE state = 'claimed'"
            ).rowcount
            connection.execute(
                "UPDATE judgements SET state = 'fault', reason = 'worker_lost', finished_at = ?,"
                " message = losses || ' servers were killed while they judged it'"
                " WHERE state = 'queued' AND losses >= ?",
                [time.time(), MOST_LOSSES],
            )
            connection.execute("UPDATE judgements SET state = 'new' WHERE state = 'queued'")
            _count(connection, "claims_lost", lost)

    def add_devices(self, devices: Sequence[Mapping[str, Any]]) -> None:
        """Note that there is a judge on each of these devices."""
        with self._database.transaction() as connection:
            for row in devices:
                connection.execute(
                    'INSERT INTO devices (device_id, device_class, "row", is_here)'
                    " VALUES (?, ?, ?, 1) ON CONFLICT DO UPDATE SET is_here = 1, quarantine = NULL",
                    [row["device_id"], row["name"], json.dumps(row)],
                )

    def remove_devices(self, device_ids: Sequence[str], quarantine: str | None = None) -> None:
        """Note that judges are gone, or why the devices take no more kernels."""
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE devices SET is_here = 0, quarantine = coalesce(?, quarantine)"
                " WHERE device_id = ?",
                [[quarantine, device_id] for device_id in device_ids],
            )

    def list_classes(self) -> dict[str, str]:
        """Return the kind of every device class that there has been."""
        return {row["device_class"]: row["row"]["kind"] for row in self.list_devices()}

    def list_devices(self) -> list[Row]:
        """Return all devices with their rows."""
        rows = self._database.read("SELECT * FROM devices ORDER BY device_class, device_id")
        return [row | {"row": json.loads(row["row"])} for row in rows]

    def mark_recorded(self, device_ids: Sequence[str]) -> None:
        """Note that the lake has the rows of devices."""
        with self._database.transaction() as connection:
            connection.executemany(
                "UPDATE devices SET recorded = 1 WHERE device_id = ?",
                [[device_id] for device_id in device_ids],
            )

    def claim(self, device_class: str, count: int, loaded: Sequence[str] = ()) -> list[Case]:
        """Give up to `count` cases to judges, each time of the client that was served least.

        The `request_id` of each case is the judgment. Tasks that the judges have loaded go first
        among the oldest of a client.
        """
        claims: list[Case] = []
        with self._database.transaction() as connection:
            mean_s = _read_mean(connection)
            while len(claims) < count:
                wanted: Row = {"device_class": device_class}
                client = connection.execute(read_sql(__file__, "next_client"), wanted).fetchone()
                if client is None:
                    break
                wanted |= {
                    "client": client["client"],
                    "loaded": json.dumps(list(loaded)),
                    "long_ago": time.time() - _PATIENCE_S,
                }
                row = connection.execute(read_sql(__file__, "next_judgement"), wanted).fetchone()
                connection.execute(
                    "UPDATE judgements SET state = 'claimed', started_at = NULL, charged_to = ?,"
                    " charged_s = ? WHERE judgement_id = ?",
                    [client["client"], mean_s, row["judgement_id"]],
                )
                connection.execute(
                    "INSERT INTO shares VALUES (?, ?, ?)"
                    " ON CONFLICT DO UPDATE SET used_s = used_s + excluded.used_s",
                    [client["client"], device_class, mean_s],
                )
                named = {"request_id": row["judgement_id"]}
                claims.append(Case.read(json.loads(row["case"]) | named))
        return claims

    def begin(self, judgement_id: str) -> None:
        """Note that a judge begins with a case."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE judgements SET started_at = ? WHERE judgement_id = ?"
                " AND state = 'claimed' AND started_at IS NULL",
                [time.time(), judgement_id],
            )
        self._notify([judgement_id])

    def answer(self, judgement_id: str, answer: Mapping[str, Any]) -> bool:
        """Store the judges' answer to a claim durably; return whether it is the one that counts.

        A judgment whose time is over is still answered. One that a client has requested anew since
        then is judged again.

        The answer has `tables` (rows that were accepted), `device_id` and `judged_s`.
        """
        judged_s, now = float(answer["judged_s"]), time.time()
        with self._database.transaction() as connection:
            row = connection.execute(
                "UPDATE judgements SET state = 'answered', answer = ?, judged_s = ?,"
                " started_at = max(? - ?, submitted_at), finished_at = NULL, reason = NULL,"
                " message = NULL WHERE judgement_id = ? AND state IN ('claimed', 'fault')"
                ' AND "case" IS NOT NULL RETURNING *',
                [json.dumps(answer), judged_s, now, judged_s, judgement_id],
            ).fetchone()
            if row is None:
                return False
            connection.execute(
                "UPDATE shares SET used_s = used_s + ? WHERE client = ? AND device_class = ?",
                [judged_s - row["charged_s"], row["charged_to"], row["device_class"]],
            )
            mean_s = _read_mean(connection)
            connection.execute(
                "INSERT INTO counters VALUES ('mean_judged_s', ?)"
                " ON CONFLICT DO UPDATE SET value = excluded.value",
                [mean_s + _WEIGHT * (judged_s - mean_s)],
            )
            _count(connection, "answers")
            _count(connection, "judged_s", judged_s)
        self._notify([judgement_id])
        return True

    def release(self, device_class: str) -> None:
        """Queue the claimed cases of a class of devices again, whose judges have none in hand."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "UPDATE judgements SET state = 'queued', started_at = NULL"
                " WHERE device_class = ? AND state = 'claimed' RETURNING judgement_id",
                [device_class],
            ).fetchall()
        self._notify([row["judgement_id"] for row in rows])

    def expire(self) -> None:
        """Give up what waits or is judged for too long."""
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
                    {"now": time.time(), "reason": reason},
                ).fetchall()
                late += [row["judgement_id"] for row in rows]
        self._notify(late)

    def read_counters(self) -> dict[str, float]:
        """Return the totals since the queue was created."""
        return {row["name"]: row["value"] for row in self._database.read("SELECT * FROM counters")}

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
        # After this time a full queue has shrunk by a few judgments.
        mean_s = _read_mean(connection)
        refused.retry_after_s = math.ceil(min(max(2 * mean_s, 1.0), _LONGEST_PAUSE_S))
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


def _describe(row: Mapping[str, Any]) -> Row:
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


def _read_mean(connection: sqlite3.Connection) -> float:
    row = connection.execute("SELECT value FROM counters WHERE name = 'mean_judged_s'").fetchone()
    return row["value"] if row is not None else _FIRST_GUESS_S


def _count(connection: sqlite3.Connection, name: str, by: float = 1) -> None:
    connection.execute(
        "INSERT INTO counters VALUES (?, ?)"
        " ON CONFLICT DO UPDATE SET value = value + excluded.value",
        [name, by],
    )


Scope: TypeAlias = Literal["read", "judge", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_CLIENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create_token(database: Database, client: str, scopes: Sequence[Scope]) -> str:
    """Store the hash of a new token and return the token, which nothing shows again.

    Shares and generations carry the client's name. Raises FlywheelError: the name cannot be used,
    or a token of this name exists.
    """
    if not _CLIENT.fullmatch(client):
        raise FlywheelError(
            f"{client!a} cannot name a client",
            "Use up to 64 letters, digits, dots, hyphens and underscores.",
        )
    token_id = secrets.token_hex(6)
    token = f"fw_{token_id}_{secrets.token_urlsafe(32)}"
    with database.transaction() as connection:
        if connection.execute("SELECT 1 FROM tokens WHERE client = ?", [client]).fetchone():
            raise FlywheelError(
                f"{client} has a token already", "Revoke it first, or choose another name."
            )
        connection.execute(
            "INSERT INTO tokens (token_id, client, scopes, hash, created_at)"
            " VALUES (?, ?, ?, ?, ?)",
            [token_id, client, " ".join(dict.fromkeys(scopes)), hash_token(token), time.time()],
        )
    return token


def list_tokens(database: Database) -> list[dict[str, Any]]:
    """Return the tokens without their hashes."""
    return database.read("SELECT client, scopes, created_at FROM tokens ORDER BY client")


def revoke_token(database: Database, client: str) -> None:
    """Delete the token of a client; requests with it fail from now on. Raises UnknownName."""
    with database.transaction() as connection:
        deleted = connection.execute("DELETE FROM tokens WHERE client = ?", [client]).rowcount
    if not deleted:
        known = [row["client"] for row in list_tokens(database)]
        raise UnknownName.among("token", client, known)


def hash_token(token: str) -> str:
    """Return the hash that is stored. A token has 256 random bits, so a plain hash suffices."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_scopes(words: Sequence[str]) -> tuple[Scope, ...]:
    """Return scopes by their names. Raises UnknownName."""
    for word in words:
        if word not in SCOPES:
            raise UnknownName.among("scope", word, SCOPES)
    return cast("tuple[Scope, ...]", tuple(words))
