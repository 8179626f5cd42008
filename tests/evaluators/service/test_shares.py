"""The order in which judgements are claimed: fair to clients, by priority within a client's own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import builders as b
import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.judging.case import Case
from evaluators.service.queue.claims import MOST_LOSSES, Claims
from evaluators.service.queue.database import Database
from evaluators.service.queue.judgements import Judgements, Outcome, Ticket
from evaluators.service.queue.submission import parse_submission
from evaluators.service.queue.workers import Workers
from store.errors import FlywheelError
from store.lake.location import Location

DEVICE = b.device() | {"created_at": "2026-01-01T00:00:00+00:00"}

CASE = Case(kernel_id="k", task_id="t", workload_id="w")


class Queue:
    """A queue whose judgements need no lake."""

    def __init__(self, folder: Path, most: int = 1000) -> None:
        self.database = Database(Location.of(str(folder)))
        self.judgements = Judgements(self.database, most)
        self.claims = Claims(self.database)
        self.workers = Workers(self.database)
        self.worker = self.workers.join("worker", "host", [DEVICE])
        self.names: dict[str, str] = {}

    def submit(self, client: str, names: Sequence[str], priority: int = 5) -> None:
        """Queue judgements with these names."""
        tickets = [
            Ticket(
                submission=parse_submission(
                    {"task": "t", "code": f"{client} {name}", "priority": priority}
                ),
                task_id="t",
                device_class=DEVICE["name"],
                policy=None,
                evaluator="judge 1",
                judge_limit_s=60.0,
            )
            for name in names
        ]
        ids = self.judgements.submit(client, tickets)
        self.names |= dict(zip(ids, names, strict=True))
        self.judgements.settle(Outcome(judgement_id=i, state="queued", case=CASE) for i in ids)

    def take(self, count: int = 1) -> list[str]:
        """Claim judgements and return their names."""
        claims = self.claims.claim(self.worker, count, 0, None)
        return [self.names[claim.judgement_id] for claim in claims]

    def judge(self, seconds: float) -> str:
        """Claim and answer one judgement; return its name."""
        [claim] = self.claims.claim(self.worker, 1, 0, None)
        row = self.claims.find_claimed(self.worker, claim.judgement_id, claim.lease)
        assert row is not None
        answer = {"judged_s": seconds, "tables": {}, "device_id": DEVICE["device_id"]}
        assert self.claims.answer(row, answer, refused=False)
        return self.names[claim.judgement_id]


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    return Queue(tmp_path)


def test_a_late_client_is_not_behind_a_long_queue(queue: Queue) -> None:
    queue.submit("bulk", [f"b{i}" for i in range(50)])
    assert queue.take(4) == ["b0", "b1", "b2", "b3"]
    queue.submit("late", ["l0", "l1"])
    assert sorted(queue.take(4)) == ["b4", "b5", "l0", "l1"]


def test_shares_are_of_seconds_and_not_of_kernels(queue: Queue) -> None:
    queue.submit("slow", [f"s{i}" for i in range(40)])
    queue.submit("quick", [f"q{i}" for i in range(40)])
    seconds = {"s": 8.0, "q": 1.0}
    used = {"s": 0.0, "q": 0.0}
    following = "s"
    for _ in range(36):
        claims = queue.claims.claim(queue.worker, 1, 0, None)
        following = queue.names[claims[0].judgement_id][0]
        row = queue.claims.find_claimed(queue.worker, claims[0].judgement_id, claims[0].lease)
        assert row is not None
        answer = {"judged_s": seconds[following], "tables": {}, "device_id": DEVICE["device_id"]}
        queue.claims.answer(row, answer, refused=False)
        used[following] += seconds[following]
    assert abs(used["s"] - used["q"]) <= 16


def test_priority_orders_a_clients_own_work(queue: Queue) -> None:
    queue.submit("one", ["low"], priority=1)
    queue.submit("one", ["high"], priority=9)
    queue.submit("two", ["other"], priority=0)
    assert queue.take(2) == ["high", "other"]
    assert queue.take(2) == ["low"]


def test_idle_time_earns_no_credit(queue: Queue) -> None:
    queue.submit("busy", [f"b{i}" for i in range(30)])
    for _ in range(10):
        queue.judge(5.0)
    queue.submit("idle", [f"i{i}" for i in range(30)])
    taken = [queue.judge(5.0)[0] for _ in range(10)]
    assert 4 <= taken.count("i") <= 6


@settings(max_examples=count_examples(25), deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(1, 5))
def test_nobody_starves(tmp_path_factory: pytest.TempPathFactory, who: str, step: int) -> None:
    queue = Queue(tmp_path_factory.mktemp("queue"))
    for number, client in enumerate(who):
        queue.submit(client, [f"{client}{number}"])
    taken: list[str] = []
    while batch := queue.take(step):
        taken += batch
    assert sorted(taken) == sorted(f"{client}{number}" for number, client in enumerate(who))
    # Of two clients with work, neither gets two cases more than the other.
    for first, second in ("ab", "bc", "ac"):
        both = min(who.count(first), who.count(second))
        begin = [name for name in taken if name[0] in (first, second)][: 2 * both]
        assert abs(sum(name[0] == first for name in begin) - both) <= 1
    queue.database.close()


def test_what_workers_are_lost_with_is_given_up(queue: Queue) -> None:
    queue.submit("one", ["fatal", "innocent"])
    for _ in range(MOST_LOSSES):
        worker = queue.workers.join("worker", "host", [DEVICE])
        claims = queue.claims.claim(worker, 2, 0, None)
        [fatal] = [c.judgement_id for c in claims if queue.names[c.judgement_id] == "fatal"]
        queue.claims.keep_alive(worker, [fatal], {})
        queue.claims.leave(worker, lost=True)
    read = queue.judgements.read(list(queue.names))
    views = {queue.names[one]: view for one, view in read.items()}
    assert views["fatal"]["fault"]["reason"] == "worker_lost"
    assert views["innocent"]["status"] == "queued"


def test_a_claim_whose_reply_is_lost_goes_back(queue: Queue) -> None:
    queue.submit("one", ["a"])
    assert queue.take() == ["a"]
    assert queue.take() == []
    queue.claims.release_unknown(queue.worker, [])
    assert queue.take() == ["a"]


def test_cases_are_taken_ahead_only_while_there_are_plenty(queue: Queue) -> None:
    queue.submit("one", [f"k{i}" for i in range(6)])
    assert len(queue.claims.claim(queue.worker, 1, 8, None)) == 4
    assert len(queue.claims.claim(queue.worker, 1, 8, None)) == 1


def test_answers_count_once_for_any_number_of_threads(queue: Queue) -> None:
    queue.submit("one", ["a"])
    [claim] = queue.claims.claim(queue.worker, 1, 0, None)
    row = queue.claims.find_claimed(queue.worker, claim.judgement_id, claim.lease)
    assert row is not None
    answer = {"judged_s": 1.0, "tables": {}, "device_id": DEVICE["device_id"]}
    taken: list[bool] = []

    def send() -> None:
        taken.append(queue.claims.answer(row, answer, refused=False))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken.count(True) == 1


def test_old_judgements_are_forgotten(queue: Queue) -> None:
    queue.submit("one", ["a", "b"])
    [first, _] = queue.names
    queue.judgements.settle([Outcome(judgement_id=first, state="queued")])
    queue.claims.claim(queue.worker, 1, 0, None)
    with queue.database.transaction() as connection:
        connection.execute("UPDATE judgements SET state = 'done', finished_at = ?", [time.time()])
    queue.judgements.prune()
    assert len(queue.judgements.read(list(queue.names))) == 2
    with queue.database.transaction() as connection:
        connection.execute("UPDATE judgements SET finished_at = 1")
    queue.judgements.prune()
    assert queue.judgements.read(list(queue.names)) == {}


def test_a_queue_of_another_format_or_damaged_is_refused(tmp_path: Path) -> None:
    Database(Location.of(str(tmp_path))).close()
    file = tmp_path / "service.sqlite"
    assert file.stat().st_mode & 0o077 == 0
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(FlywheelError, match="format 99"):
        Database(Location.of(str(tmp_path)))
    file.write_bytes(b"not a database" * 1000)
    with pytest.raises(FlywheelError, match="cannot be used"):
        Database(Location.of(str(tmp_path)))
