"""A published lake that was made to change what another lake has decided: it may only inform."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import builders
import pyarrow as pa
import pytest
from builders import Row
from hub import lakes
from hub.server import HubServer

import store
from store.errors import ImportFailed
from store.foreign.parquet import ParquetLimits
from store.hub.client import Hub
from store.hub.edition import Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.importers import starter
from store.importers.reading.run import run_import
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
EVIL = "evil/kernels"
FAR = datetime(2999, 1, 1, tzinfo=UTC)


@dataclass
class Lakes:
    """Two lakes of the same rows, and what of them the tests speak of."""

    mine: str
    theirs: str
    task: Row
    size: Row
    device: Row
    wrong: Row
    """A kernel that this lake found incorrect."""
    finding: Row
    """The confirmed finding by which a kernel is in quarantine."""

    def ask(self, query: str, *given: object) -> list[dict[str, Any]]:
        """Return rows of the lake that pulls."""
        with store.open(self.mine) as lake:
            return lake.sql(query, list(given) or None).rows()

    def write(self, rows: dict[str, list[Row]], *, mine: bool = False) -> None:
        """Append rows to one of the lakes."""
        with store.writer(self.mine if mine else self.theirs, author="tests") as writer:
            writer.append(rows, "rows")


@pytest.fixture
def both_lakes(rich_url: str, tmp_path: Path) -> Lakes:
    """Return a lake with a kernel in quarantine and an incorrect one, and a copy of it."""
    rows = lakes.rows()
    task, size, device = rows["tasks"][0], rows["workloads"][0], rows["devices"][0]
    wrong = builders.kernel("wrong", license="MIT")
    judged = builders.evaluation(wrong, task, size, device, "incorrect", version=5)
    audit = builders.task_audit(size, device, ["zeros"])
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"kernels": [wrong], "evaluations": [judged], "task_audits": [audit]}, "x")
    theirs = str(shutil.copytree(rich_url, tmp_path / "theirs"))
    return Lakes(
        mine=rich_url, theirs=theirs, task=task, size=size, device=device, wrong=wrong,
        finding=rows["findings"][0],
    )  # fmt: skip


def test_pulled_decisions_release_nothing_and_later_own_ones_count(
    both_lakes: Lakes, hub: Hub
) -> None:
    quarantined = "SELECT kernel_id FROM quarantined ORDER BY 1"
    before = both_lakes.ask(quarantined)
    assert len(before) == 1
    dismissed = builders.standing(both_lakes.finding, "dismissed", minute=1, created_at=FAR)
    both_lakes.write({"standings": [dismissed]})
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    done = pull(both_lakes.mine, EVIL, hub=hub)
    assert done.rows["standings"] == 1
    assert both_lakes.ask(quarantined) == before
    # It informs: who said so and from where, at a time that is not in the future.
    told = both_lakes.ask(
        "SELECT decision, origin, created_at FROM standings WHERE origin IS NOT NULL"
    )
    assert [(row["decision"], row["origin"]) for row in told] == [("dismissed", EVIL)]
    assert told[0]["created_at"] <= datetime.now(UTC)
    shown = both_lakes.ask("SELECT decision, origin FROM finding_standings")
    assert shown == [{"decision": "confirmed", "origin": None}]
    again = pull(both_lakes.mine, EVIL, hub=hub)
    assert (again.rows, again.conflicts) == ({}, done.conflicts)
    # This lake's own later decisions count, both ways.
    for minutes, decision, left in ((1, "dismissed", []), (2, "confirmed", before)):
        moment = datetime.now(UTC) + timedelta(minutes=minutes)
        row = builders.standing(both_lakes.finding, decision, minute=minutes + 5, created_at=moment)
        both_lakes.write({"standings": [row]}, mine=True)
        assert both_lakes.ask(quarantined) == left
    assert integrity.check(Location.of(both_lakes.mine)) == []


def test_a_pulled_confirmation_counts_until_this_lake_decides(both_lakes: Lakes, hub: Hub) -> None:
    open_finding = builders.finding(both_lakes.wrong, "reads_reference", confidence=0.9)
    both_lakes.write({"findings": [open_finding]}, mine=True)
    both_lakes.write(
        {
            "findings": [open_finding],
            "standings": [
                builders.standing(open_finding, "confirmed"),
                builders.standing(open_finding, "dismissed", minute=9),
            ],
        }
    )
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    done = pull(both_lakes.mine, EVIL, hub=hub)
    assert any("now in quarantine" in notice for notice in done.notices)
    held = "SELECT count(*) AS n FROM quarantined WHERE kernel_id = $1"
    # Their own dismissal of it releases nothing here; ours does.
    assert both_lakes.ask(held, both_lakes.wrong["kernel_id"]) == [{"n": 1}]
    both_lakes.write(
        {"standings": [builders.standing(open_finding, "dismissed", minute=50)]}, mine=True
    )
    assert both_lakes.ask(held, both_lakes.wrong["kernel_id"]) == [{"n": 0}]


def test_a_pulled_row_cannot_take_the_id_of_a_decision_that_is_made_here_later(
    tmp_path: Path, hub: Hub
) -> None:
    honest, theirs, mine = (str(tmp_path / name) for name in ("honest", "theirs", "mine"))
    with store.writer(honest, author="tests") as writer:
        run_import(writer, starter, None, starter.Config(measured=False))
    with store.open(honest) as lake:
        held = lake.sql("SELECT count(*) AS n FROM quarantined").rows()
        names = ("policies", "tasks", "kernels", "runs", "findings", "standings")
        rows = {name: lake.sql(f"FROM {name}").arrow() for name in names}
    forged = pa.array(["dismissed"] * rows["standings"].num_rows)
    place = rows["standings"].column_names.index("decision")
    rows["standings"] = rows["standings"].set_column(place, "decision", forged)
    with store.writer(theirs, author="evil") as writer:
        writer.append(rows, "the starter's ids with another decision")
    publish(theirs, EVIL, Options(tag="v1"), hub=hub)
    store.writer(mine, author="tests").close()
    pull(mine, EVIL, hub=hub)
    with store.writer(mine, author="tests") as writer:
        run_import(writer, starter, None, starter.Config(measured=False))
    assert held != [{"n": 0}]
    with store.open(mine) as lake:
        assert lake.sql("SELECT count(*) AS n FROM quarantined").rows() == held


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("trick", ["version", "evaluator", "workload", "device"])
def test_no_pulled_verdict_overrides_one_of_this_lake(
    trick: str, both_lakes: Lakes, hub: Hub
) -> None:
    size, device = both_lakes.size, both_lakes.device
    rows: dict[str, list[Row]] = {}
    if trick == "workload":
        size = builders.workload(both_lakes.task, "cuda", '{"N": 1}')
        rows["workloads"] = [size]
    if trick == "device":
        device = builders.device("another", kind="cuda") | {"name": both_lakes.device["name"]}
        rows["devices"] = [device]
    judged = builders.evaluation(
        both_lakes.wrong, both_lakes.task, size, device, version=999, created_at=FAR,
        evaluator="trust_me" if trick == "evaluator" else "starter",
    )  # fmt: skip
    rows["evaluations"] = [judged]
    rows["timings"] = builders.session(judged, [0.001] * 15, eager=[9.0] * 15)
    verdict = "SELECT status, evaluator_version FROM verdicts WHERE kernel_id = $1"
    best = "SELECT task_id, kernel_id, speedup FROM best_kernels ORDER BY ALL"
    before = both_lakes.ask(verdict, both_lakes.wrong["kernel_id"]), both_lakes.ask(best)
    chosen = "SELECT kind, chosen.axes AS axes FROM judged_workloads WHERE task_id = $1 ORDER BY 1"
    judged_on = both_lakes.ask(chosen, both_lakes.task["task_id"])
    both_lakes.write(rows)
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    pull(both_lakes.mine, EVIL, hub=hub)
    assert both_lakes.ask("SELECT count(*) AS n FROM evaluations WHERE origin = $1", EVIL) == [
        {"n": 1}
    ]
    assert (both_lakes.ask(verdict, both_lakes.wrong["kernel_id"]), both_lakes.ask(best)) == before
    assert both_lakes.ask(chosen, both_lakes.task["task_id"]) == judged_on
    later = both_lakes.ask("SELECT count(*) AS n FROM evaluations WHERE created_at > now()")
    assert later == [{"n": 0}]


@pytest.mark.slow
def test_a_failing_pulled_verdict_takes_nothing_from_a_kernel_judged_here(
    both_lakes: Lakes, hub: Hub
) -> None:
    fast = lakes.rows()["kernels"][0]
    failed = builders.evaluation(
        fast, both_lakes.task, both_lakes.size, both_lakes.device, "crash", version=999
    )
    both_lakes.write({"evaluations": [failed]})
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    pull(both_lakes.mine, EVIL, hub=hub)
    outcome = both_lakes.ask("SELECT correct FROM outcomes WHERE kernel_id = $1", fast["kernel_id"])
    assert outcome == [{"correct": True}]


def test_rows_that_would_join_what_this_lake_recorded_stay_out(both_lakes: Lakes, hub: Hub) -> None:
    own = lakes.rows()["evaluations"][0]
    forged = builders.session(own, [0.001] * 15, eager=[9.0] * 15, minute=500)
    run = lakes.rows()["runs"][0]
    metric = {"run_id": run["run_id"], "name": "reward", "step": 1, "value": 9.0}
    both_lakes.write({"timings": forged, "metrics": [metric]})
    sessions = "SELECT count(*) AS n FROM speedups"
    before = both_lakes.ask(sessions)
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    done = pull(both_lakes.mine, EVIL, hub=hub)
    told = "\n".join(done.notices)
    assert "2 rows of timings that would join a evaluation_id of this lake" in told
    assert "1 rows of metrics that would join a run_id of this lake" in told
    assert both_lakes.ask(sessions) == before
    assert both_lakes.ask("SELECT count(*) AS n FROM metrics") == [{"n": 0}]


def test_pulled_audits_splits_and_features_decide_nothing(
    both_lakes: Lakes, hub: Hub, tmp_path: Path
) -> None:
    weak = both_lakes.ask("SELECT task_id FROM weak_workloads")
    assert weak == [{"task_id": both_lakes.task["task_id"]}]
    audit = builders.task_audit(both_lakes.size, both_lakes.device, [], auditor_version=999)
    fresh = builders.kernel("fresh", license="MIT")
    forged = builders.features(fresh, ["magic"], version=999, minhash_bands=[1])
    held_out = builders.split("rnn", "train")
    both_lakes.write(
        {
            "task_audits": [audit],
            "kernels": [fresh],
            "kernel_features": [forged],
            "splits": [held_out],
        }
    )
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    done = pull(both_lakes.mine, EVIL, hub=hub)
    assert both_lakes.ask("SELECT task_id FROM weak_workloads") == weak
    split = both_lakes.ask("SELECT split FROM splits WHERE family = 'rnn'")
    assert split == [{"split": "test"}]
    assert any("splits replaced" in notice for notice in done.notices)
    seen = both_lakes.ask(
        "SELECT extractor_version, techniques FROM kernel_features WHERE kernel_id = $1",
        fresh["kernel_id"],
    )
    assert seen == [{"extractor_version": 1, "techniques": []}]


@pytest.mark.slow
def test_a_published_file_that_expands_too_far_is_refused(
    both_lakes: Lakes, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    mine = str(tmp_path / "empty")
    with pytest.raises(ImportFailed, match=r"allowed.*\n.*raise --max-file-gb"):
        pull(mine, EVIL, hub=hub, limits=ParquetLimits(file_gb=1e-7))
    with pytest.raises(ImportFailed, match="Nothing was downloaded"):
        pull(mine, EVIL, hub=hub, limits=ParquetLimits(total_gb=1e-7))
    assert not Path(mine).exists()
    assert pull(mine, EVIL, hub=hub).rows["kernels"] > 0
