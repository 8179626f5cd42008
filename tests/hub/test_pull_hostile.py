"""A published lake that was made to change what another lake has decided: it may only inform."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import builders
import huggingface_hub.constants
import pyarrow as pa
import pytest
from builders import Row
from hub import lakes
from hub.server import TOKEN, HubServer

import store
from store.bounds import ParquetLimits
from store.code.features import EXTRACTOR_VERSION
from store.errors import ImportFailed
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import PullSummary, pull
from store.importers import starter
from store.importers.reading.pieces import run_import
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
EVIL = "evil/kernels"
FAR = datetime(2999, 1, 1, tzinfo=UTC)
SESSIONS = "SELECT count(*) AS n FROM speedups"
WEAK = "SELECT task_id FROM weak_workloads"


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


@dataclass
class Merged:
    """Two lakes after one has pulled the other, and what was so before."""

    lakes: Lakes
    done: PullSummary
    sessions: list[dict[str, Any]]
    weak: list[dict[str, Any]]
    open_finding: Row
    """A finding that only the other lake has decided on."""
    fresh: Row
    """A kernel that only the other lake had."""


@pytest.fixture
def both_lakes(rich_url: str, tmp_path: Path) -> Lakes:
    """Return a lake with a kernel in quarantine and an incorrect one, and a copy of it."""
    return copy_lake(rich_url, tmp_path / "theirs")


def copy_lake(rich_url: str, copy: Path) -> Lakes:
    """Add a kernel in quarantine and an incorrect one to a lake, and copy it."""
    rows = lakes.rows()
    task, size, device = rows["tasks"][0], rows["workloads"][0], rows["devices"][0]
    wrong = builders.kernel("wrong", license="MIT")
    judged = builders.evaluation(wrong, task, size, device, "incorrect", version=5)
    audit = builders.task_audit(size, device, ["zeros"])
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"kernels": [wrong], "evaluations": [judged], "task_audits": [audit]}, "x")
    theirs = str(shutil.copytree(rich_url, copy))
    return Lakes(
        mine=rich_url, theirs=theirs, task=task, size=size, device=device, wrong=wrong,
        finding=rows["findings"][0],
    )  # fmt: skip


@pytest.fixture(scope="module")
def merged(rich_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """Return a lake that has pulled rows of all kinds that are to change what it says."""
    folder = tmp_path_factory.mktemp("merged")
    both = copy_lake(str(shutil.copytree(rich_lake, folder / "mine")), folder / "theirs")
    open_finding = builders.finding(both.wrong, "reads_reference", confidence=0.9)
    fresh = builders.kernel("fresh", license="MIT")
    own = lakes.rows()["evaluations"][0]
    run = lakes.rows()["runs"][0]
    both.write({"findings": [open_finding]}, mine=True)
    both.write(
        {
            "findings": [open_finding],
            "standings": [
                builders.standing(open_finding, "confirmed"),
                builders.standing(open_finding, "dismissed", minute=9),
            ],
            "timings": builders.session(own, [0.001] * 15, eager=[9.0] * 15, minute=500),
            "metrics": [{"run_id": run["run_id"], "name": "reward", "step": 1, "value": 9.0}],
            "task_audits": [builders.task_audit(both.size, both.device, [], auditor_version=999)],
            "kernels": [fresh],
            "kernel_features": [
                builders.features(fresh, ["magic"], version=999, minhash_bands=[1])
            ],
            "splits": [builders.split("rnn", "train")],
        }
    )
    sessions, weak = both.ask(SESSIONS), both.ask(WEAK)
    with HubServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hf-cache"))
        hub = Hub(server.url, TOKEN, timeout_s=120)
        publish(both.theirs, EVIL, Options(tag="v1"), hub=hub)
        done = pull(both.mine, EVIL, hub=hub)
    return Merged(both, done, sessions, weak, open_finding, fresh)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_pulled_confirmation_counts_until_this_lake_decides(merged: Merged) -> None:
    mine = merged.lakes
    assert any("now in quarantine" in notice for notice in merged.done.notices)
    held = "SELECT count(*) AS n FROM quarantined WHERE kernel_id = $1"
    # Their own dismissal of it releases nothing here; ours does.
    assert mine.ask(held, mine.wrong["kernel_id"]) == [{"n": 1}]
    mine.write(
        {"standings": [builders.standing(merged.open_finding, "dismissed", minute=50)]}, mine=True
    )
    assert mine.ask(held, mine.wrong["kernel_id"]) == [{"n": 0}]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_rows_that_would_join_what_this_lake_recorded_stay_out(merged: Merged) -> None:
    told = "\n".join(merged.done.notices)
    assert "kept out of timings: 2 that would join this lake's evaluations" in told
    assert "kept out of metrics: 1 that would join this lake's runs" in told
    assert merged.lakes.ask(SESSIONS) == merged.sessions
    assert merged.lakes.ask("SELECT count(*) AS n FROM metrics") == [{"n": 0}]


@pytest.mark.slow
def test_pulled_audits_splits_and_features_decide_nothing(merged: Merged) -> None:
    mine = merged.lakes
    assert mine.ask(WEAK) == merged.weak == [{"task_id": mine.task["task_id"]}]
    split = mine.ask("SELECT split FROM splits WHERE family = 'rnn'")
    assert split == [{"split": "test"}]
    assert any("splits replaced" in notice for notice in merged.done.notices)
    seen = mine.ask(
        "SELECT extractor_version, techniques FROM kernel_features WHERE kernel_id = $1",
        merged.fresh["kernel_id"],
    )
    assert seen == [{"extractor_version": EXTRACTOR_VERSION, "techniques": []}]


@pytest.mark.slow
def test_a_published_file_that_expands_too_far_is_refused(
    both_lakes: Lakes, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    publish(both_lakes.theirs, EVIL, Options(tag="v1"), hub=hub)
    mine = str(tmp_path / "empty")
    with pytest.raises(ImportFailed, match=r"allowed.*\n.*raise --max-file-gb"):
        pull(mine, EVIL, hub=hub, limits=ParquetLimits(max_file_gb=1e-7))
    with pytest.raises(ImportFailed, match="Nothing was downloaded"):
        pull(mine, EVIL, hub=hub, limits=ParquetLimits(max_total_gb=1e-7))
    assert not Path(mine).exists()
    assert pull(mine, EVIL, hub=hub).rows["kernels"] > 0


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("changes", [{"kind": "cuda"}, {"name": "LAPTOP"}], ids=["kind", "case"])
def test_a_device_that_passes_for_one_of_this_lake_is_refused(
    hub: Hub, tmp_path: Path, changes: Row
) -> None:
    own = builders.device("laptop")
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    forged = builders.device("forged") | {"name": "laptop"} | changes
    for url, device in ((mine, own), (theirs, forged)):
        with store.writer(url, author="tests") as writer:
            writer.append({"devices": [device]}, "a device")
    publish(theirs, EVIL, Options(tag="v1"), hub=hub)
    with pytest.raises(ImportFailed, match="would rank with or beside 'laptop'"):
        pull(mine, EVIL, hub=hub)
