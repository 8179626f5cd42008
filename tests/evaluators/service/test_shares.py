"""The order in which judgements are claimed: fair to clients, by priority within a client's own."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import builders as b
import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.judging.case import Case
from evaluators.service.queue import (
    MOST_LOSSES,
    Database,
    Queue,
    QueueUpdate,
    Ticket,
    parse_submission,
)
from store.errors import FlywheelError
from store.lake.location import Location

DEVICE = b.device() | {"created_at": "2026-01-01T00:00:00+00:00"}
CASE = Case(kernel_id="k", task_id="t", workload_id="w")


class Judged:
    """A queue whose judgements need no lake."""

    def __init__(self, folder: Path, most: int = 1000) -> None:
        self.database = Database(Location.of(str(folder)))
        self.queue = Queue(self.database, most)
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
                precision=None,
                evaluator="judge 1",
                judge_limit_s=60.0,
            )
            for name in names
        ]
        ids = self.queue.submit(client, tickets)
        self.names |= dict(zip(ids, names, strict=True))
        self.queue.record_results(
            QueueUpdate(judgement_id=i, state="queued", case=CASE) for i in ids
        )

    def take(self, count: int = 1) -> list[str]:
        """Claim judgements and return their names."""
        return [self.names[claim.request_id] for claim in self.claim(count)]

    def claim(self, count: int = 1) -> list[Case]:
        """Claim judgements."""
        return self.queue.claim(DEVICE["name"], count)

    def answer(self, claim: Case, seconds: float) -> bool:
        """Answer a claim; return whether the answer counts."""
        answer = {"judged_s": seconds, "tables": {}, "device_id": DEVICE["device_id"]}
        return self.queue.answer(claim.request_id, answer)

    def judge(self, seconds: float) -> str:
        """Claim and answer one judgement; return its name."""
        [claim] = self.claim()
        assert self.answer(claim, seconds)
        return self.names[claim.request_id]


@pytest.fixture
def queue(tmp_path: Path) -> Judged:
    return Judged(tmp_path)


def test_a_late_client_is_not_behind_a_long_queue(queue: Judged) -> None:
    queue.submit("bulk", [f"b{i}" for i in range(50)])
    assert queue.take(4) == ["b0", "b1", "b2", "b3"]
    queue.submit("late", ["l0", "l1"])
    assert sorted(queue.take(4)) == ["b4", "b5", "l0", "l1"]


def test_shares_are_of_seconds_and_not_of_kernels(queue: Judged) -> None:
    queue.submit("slow", [f"s{i}" for i in range(40)])
    queue.submit("quick", [f"q{i}" for i in range(40)])
    seconds = {"s": 8.0, "q": 1.0}
    used = {"s": 0.0, "q": 0.0}
    following = "s"
    for _ in range(36):
        [claim] = queue.claim()
        following = queue.names[claim.request_id][0]
        queue.answer(claim, seconds[following])
        used[following] += seconds[following]
    assert abs(used["s"] - used["q"]) <= 16


def test_priority_orders_a_clients_own_work(queue: Judged) -> None:
    queue.submit("one", ["low"], priority=1)
    queue.submit("one", ["high"], priority=9)
    queue.submit("two", ["other"], priority=0)
    assert queue.take(2) == ["high", "other"]
    assert queue.take(2) == ["low"]


def test_idle_time_earns_no_credit(queue: Judged) -> None:
    queue.submit("busy", [f"b{i}" for i in range(30)])
    for _ in range(10):
        queue.judge(5.0)
    queue.submit("idle", [f"i{i}" for i in range(30)])
    taken = [queue.judge(5.0)[0] for _ in range(10)]
    assert 4 <= taken.count("i") <= 6


@settings(max_examples=count_examples(25), deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.integers(1, 5))
def test_nobody_starves(tmp_path_factory: pytest.TempPathFactory, who: str, step: int) -> None:
    queue = Judged(tmp_path_factory.mktemp("queue"))
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


def test_what_servers_are_killed_with_is_given_up(queue: Judged) -> None:
    queue.submit("one", ["fatal", "innocent"])
    for _ in range(MOST_LOSSES):
        claims = queue.claim(2)
        [fatal] = [c.request_id for c in claims if queue.names[c.request_id] == "fatal"]
        queue.queue.begin(fatal)
        queue.queue.recover()
        queued = queue.queue.list_in("new", 2)
        queue.queue.record_results(
            QueueUpdate(judgement_id=row["judgement_id"], state="queued", case=CASE)
            for row in queued
        )
    read = queue.queue.read(list(queue.names))
    views = {queue.names[one]: view for one, view in read.items()}
    assert views["fatal"]["fault"]["reason"] == "worker_lost"
    assert views["innocent"]["status"] == "queued"


def test_what_judges_do_not_begin_goes_back(queue: Judged) -> None:
    queue.submit("one", ["a"])
    assert queue.take() == ["a"]
    assert queue.take() == []
    queue.queue.release(DEVICE["name"])
    assert queue.take() == ["a"]


def test_a_loaded_task_goes_first_among_the_oldest(queue: Judged) -> None:
    queue.submit("one", ["a", "b"])
    with queue.database.transaction() as connection:
        connection.execute("UPDATE judgements SET task_id = 'u' WHERE sequence = 2")
    [claim] = queue.queue.claim(DEVICE["name"], 1, loaded=["u"])
    assert queue.names[claim.request_id] == "b"


def test_an_answer_counts_once(queue: Judged) -> None:
    queue.submit("one", ["a"])
    [claim] = queue.claim()
    assert [queue.answer(claim, 1.0) for _ in range(3)] == [True, False, False]


def test_old_judgements_are_forgotten(queue: Judged) -> None:
    queue.submit("one", ["a", "b"])
    [first, _] = queue.names
    queue.queue.record_results([QueueUpdate(judgement_id=first, state="queued")])
    queue.claim()
    with queue.database.transaction() as connection:
        connection.execute("UPDATE judgements SET state = 'done', finished_at = ?", [time.time()])
    queue.queue.prune()
    assert len(queue.queue.read(list(queue.names))) == 2
    with queue.database.transaction() as connection:
        connection.execute("UPDATE judgements SET finished_at = 1")
    queue.queue.prune()
    assert queue.queue.read(list(queue.names)) == {}


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


def test_a_queue_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its cases were at workers on other hosts, which are no more."""
    connection = sqlite3.connect(tmp_path / "service.sqlite")
    connection.executescript(Path(__file__).with_name("queue_format_1.sql").read_text("utf-8"))
    connection.close()
    database = Database(Location.of(str(tmp_path)))
    queue = Queue(database, 10)
    queue.recover()
    states = {
        row["judgement_id"]: row["state"] for row in database.read("SELECT * FROM judgements")
    }
    assert queue.list_classes() == {"laptop": "cpu"}
    assert states == {"waits": "new", "claimed": "new", "answered": "answered", "done": "done"}
