"""A pulled lake does not replace what this lake says about names, figures, audits and authors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builders
import pytest
from builders import Row
from example_counts import is_thorough

import store
from evaluators.audit import detect, sweep
from evaluators.tools import get_verdict
from pipelines.selection.queries import sql
from store import read_sql
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import PullSummary, pull
from store.lake.location import FolderLocation
from store.upkeep import integrity

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
EVIL = "evil/kernels"
LATER = 60 * 24 * 90
CHEAT = """import functools
import torch


class ModelNew(torch.nn.Module):
    @functools.lru_cache(maxsize=None)
    def forward(self, x):
        return x * x
"""
MIT: Row = {"license": "MIT"}


@dataclass
class Pair:
    """A lake with one judged kernel, and a lake that it pulls."""

    mine: str
    theirs: str
    hub: Hub
    task: Row
    workload: Row
    device: Row
    policy: Row
    kernel: Row

    def write(self, rows: dict[str, list[Row]], *, mine: bool = False) -> None:
        """Append rows to one of the lakes."""
        write(self.mine if mine else self.theirs, rows)

    def pull(self) -> PullSummary:
        """Publish the other lake and pull it; in a thorough run, no row may be invalid."""
        publish(self.theirs, EVIL, Options(tag="v1"), hub=self.hub)
        done = pull(self.mine, EVIL, hub=self.hub)
        if is_thorough():  # `make test` checks a lake that pulled every table
            assert not integrity.check(FolderLocation(Path(self.mine)))
        return done

    def ask(self, query: str, *given: object) -> list[dict[str, Any]]:
        """Return rows of the lake that pulls."""
        return ask(self.mine, query, *given)


def write(url: str, rows: dict[str, list[Row]]) -> None:
    with store.writer(url, author="tests") as writer:
        writer.append(rows, "rows")


def ask(url: str, query: str, *given: object) -> list[dict[str, Any]]:
    with store.open(url) as lake:
        return lake.sql(query, list(given) or None).rows()


@pytest.fixture
def pair(hub: Hub, tmp_path: Path) -> Pair:
    """Return a lake with a kernel twice as fast as eager, and a lake with the same texts."""
    task, device = builders.task(**MIT), builders.device("H200", kind="cuda")
    workload, policy = builders.workload(task), builders.policy("mine", output_terms="MIT")
    kernel = builders.kernel("good", **MIT)
    verdict = builders.evaluation(kernel, task, workload, device)
    shared = {
        "tasks": [task], "workloads": [workload], "devices": [device], "kernels": [kernel],
        "task_labels": [builders.label(task, **MIT)], "splits": [builders.split()],
    }  # fmt: skip
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    measured = {
        "policies": [policy], "evaluations": [verdict],
        "generations": [builders.generation(policy, task, kernel, **MIT)],
        "timings": builders.session(verdict, [1.0] * 20, eager=[2.0] * 20),
    }  # fmt: skip
    write(mine, shared | measured)
    write(theirs, shared)
    return Pair(
        mine=mine, theirs=theirs, hub=hub, task=task, workload=workload, device=device,
        policy=policy, kernel=kernel,
    )  # fmt: skip


@pytest.fixture
def cheat(pair: Pair) -> Row:
    """Return a fast cheat that only the other lake has."""
    kernel = builders.kernel(code=CHEAT, **MIT)
    pair.write({"kernels": [kernel]})
    return kernel


def find_cheat(folder: Path, cheat: Row) -> list[Row]:
    """Return the finding of an audit that says how a kernel cheats."""
    write(str(folder), {"kernels": [cheat]})
    sweep.sweep(str(folder), processes=1)
    found = ask(str(folder), "SELECT * EXCLUDE (run_id, origin) FROM findings")
    return [max(found, key=lambda row: row["confidence"])]


@pytest.mark.slow
def test_audits_of_another_lake_do_not_spare_a_kernel(pair: Pair, cheat: Row) -> None:
    names = sorted(one.key for one in detect.choose_detectors(None))
    audit = builders.run("detectors", "audit", config=json.dumps({"detectors": names}))
    scan = {"kernel_id": cheat["kernel_id"], "run_id": audit["run_id"]}
    pair.write({"runs": [audit], "scans": [scan]})
    assert pair.pull().rows["scans"] == 1
    assert sweep.sweep(pair.mine, processes=1).kernels == 2
    assert pair.ask("SELECT kernel_id FROM withheld") == [{"kernel_id": cheat["kernel_id"]}]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("forged", [{"confidence": 0.0}, {"kernel_id": "other"}])
def test_a_pulled_finding_does_not_take_the_id_of_an_own_one(
    forged: Row, pair: Pair, cheat: Row, tmp_path: Path
) -> None:
    [honest] = find_cheat(tmp_path / "audited", cheat)
    if "kernel_id" in forged:
        forged = {"kernel_id": pair.kernel["kernel_id"], "confidence": 0.0}
    pair.write({"findings": [honest | forged]})
    pair.pull()
    sweep.sweep(pair.mine, processes=1)
    assert pair.ask("SELECT kernel_id FROM withheld") == [{"kernel_id": cheat["kernel_id"]}]


@pytest.mark.slow
def test_a_pulled_finding_with_the_content_of_an_own_one_is_decided_with_it(
    pair: Pair, cheat: Row, tmp_path: Path
) -> None:
    [honest] = find_cheat(tmp_path / "audited", cheat)
    copy = honest | {"finding_id": "0" * 64}
    pair.write({"findings": [honest, copy], "standings": [builders.standing(copy, "confirmed")]})
    assert pair.pull().rows["findings"] == 1
    [pulled] = pair.ask("SELECT finding_id, decision FROM finding_standings")
    assert pulled["decision"] == "confirmed"
    sweep.decide(pair.mine, pulled["finding_id"], "dismissed", "it is an example")
    sweep.sweep(pair.mine, processes=1)
    same = f"detector = '{honest['detector']}'"
    stored = pair.ask(f"SELECT finding_id FROM findings WHERE origin IS NULL AND {same}")
    assert stored == [{"finding_id": honest["finding_id"]}]
    assert pair.ask(f"SELECT finding_id, decision FROM finding_standings WHERE {same}") == [
        {"finding_id": honest["finding_id"], "decision": "dismissed"}
    ]
    assert pair.ask("FROM withheld") == []


@pytest.mark.slow
@pytest.mark.parametrize("source", ["cuda-l1", "cuda-l1/codes", "a paper"])
def test_a_later_pulled_revision_removes_no_own_claim(source: str, pair: Pair) -> None:
    def claim(name: str, speedup: float, revision: str, **columns: Any) -> Row:
        return builders.claim(
            pair.task, pair.kernel, speedup, claim_id=name, gpu="H200", source=source,
            source_revision=revision, quote=name, **MIT, **columns,
        )  # fmt: skip

    pair.write({"claims": [claim(one, 2.0, "v1") for one in ("a", "b")]}, mine=True)
    before = pair.ask("SELECT claim_id, claimed, holds FROM claims_vs_measured ORDER BY ALL")
    later = builders.at(LATER)
    forged = [
        claim("c", 99.0, "v2", created_at=later) | {"quote": "a"},
        claim("d", 99.0, "v1", created_at=later) | {"quote": "a"},
    ]
    pair.write({"claims": forged})
    assert pair.pull().rows["claims"] == 2
    assert [row["claim_id"] for row in before] == ["a", "b"]
    assert pair.ask(
        "SELECT claim_id, claimed, holds FROM claims_vs_measured ORDER BY ALL"
    ) == before  # fmt: skip


@pytest.mark.slow
def test_a_pulled_claim_does_not_block_the_import_of_the_same_id(pair: Pair) -> None:
    real = builders.claim(pair.task, pair.kernel, 2.0, claim_id="computed", **MIT)
    pair.write({"claims": [real | {"speedup": 77.0}]})
    pair.pull()
    pair.write({"claims": [real]}, mine=True)
    assert pair.ask("SELECT claim_id, speedup FROM current_claims") == [
        {"claim_id": "computed", "speedup": 2.0}
    ]
    # From now on the other lake's row differs under an id that this lake has.
    [conflict] = pair.pull().conflicts
    assert (conflict.table, conflict.columns) == ("claims", "speedup")


@pytest.mark.slow
def test_pulled_labels_and_splits_count_for_tasks_without_own_ones(pair: Pair) -> None:
    query = 'SELECT suite, task AS "name", degenerate, split FROM task_names ORDER BY ALL'
    board = "SELECT suite, tasks, n FROM leaderboard ORDER BY ALL"
    before, ranked = pair.ask(query), pair.ask(board)
    other = builders.task("other", **MIT)
    labels = [
        builders.label(
            task, "level9/9", suite="!best", suite_revision="x", family="f",
            degenerate=task is pair.task, **MIT,
        )
        for task in (pair.task, other)
    ]  # fmt: skip
    pair.write(
        {
            "tasks": [other], "task_labels": labels,
            "splits": [builders.split("f", "test", suite="!best")],
        }
    )  # fmt: skip
    assert pair.pull().rows["task_labels"] == 2
    named = {"suite": "!best", "name": "level9/9", "degenerate": False, "split": "test"}
    assert pair.ask(query) == [named, *before]
    assert pair.ask(board) == ranked


@pytest.mark.slow
def test_a_pulled_attempt_takes_neither_an_own_kernel_nor_a_place_in_an_own_search(
    pair: Pair,
) -> None:
    def attempt(policy: Row, kernel: Row, minute: int, namespace: str | None) -> Row:
        return builders.generation(
            policy, pair.task, kernel, minute=minute, namespace=namespace, step=0, **MIT
        )

    wrong, rival = builders.kernel("wrong", **MIT), builders.policy("rival", output_terms="MIT")
    own = {
        "kernels": [wrong],
        "generations": [
            attempt(pair.policy, wrong, 3, "exp/none/1"),
            attempt(pair.policy, pair.kernel, 4, "exp/scores/1"),
        ],
    }
    pair.write(own, mine=True)
    authors = "SELECT policy FROM best_kernels"
    curves = "SELECT namespace, baseline, attempt, geomean FROM search_curves ORDER BY ALL"
    before = [pair.ask(authors), pair.ask(curves)]
    assert before[0] == [{"policy": "mine"}]
    early = attempt(rival, pair.kernel, -60 * 24 * 365, "exp/none/1")
    pair.write({"policies": [rival], "generations": [early]})
    assert pair.pull().rows["generations"] == 1
    assert [pair.ask(authors), pair.ask(curves)] == before


@pytest.mark.slow
def test_a_pulled_attempt_shows_no_kernel_to_another_namespace(pair: Pair) -> None:
    own, foreign = builders.kernel("own", **MIT), builders.kernel("foreign", **MIT)

    def attempt(kernel: Row, namespace: str | None, minute: int) -> Row:
        return builders.generation(
            pair.policy, pair.task, kernel, minute=minute, namespace=namespace, **MIT
        )

    pair.write({"kernels": [own], "generations": [attempt(own, "exp/scores/1", 3)]}, mine=True)
    pulled = [
        attempt(own, None, 5), attempt(own, "exp/none/1", 6), attempt(foreign, "exp/none/1", 7)
    ]  # fmt: skip
    pair.write({"policies": [pair.policy], "kernels": [own, foreign], "generations": pulled})
    pair.pull()
    with store.open(pair.mine) as lake:
        hidden = sql("shared", "other_namespaces")
        found = lake.run(hidden, {"namespace": "exp/none/1"}).rows()
    assert {row["kernel_id"] for row in found} == {own["kernel_id"], foreign["kernel_id"]}


@pytest.mark.slow
def test_a_pulled_profile_is_not_the_diagnosis_of_a_kernel_that_was_profiled_here(
    pair: Pair,
) -> None:
    def profile(name: str, body: str, minute: int) -> Row:
        return {
            "analysis_id": name, "kernel_id": pair.kernel["kernel_id"], "kind": "profiler",
            "body": body, "bottleneck": body, "created_at": builders.at(minute),
        }  # fmt: skip

    pair.write({"analyses": [profile("b", "tensor_cores", LATER)]})
    assert pair.pull().rows["analyses"] == 1
    # The ids of analyses may not repeat; a pulled row must not make the store refuse an own one.
    pair.write({"analyses": [profile("b", "memory_bandwidth", 1)]}, mine=True)
    [verdict] = pair.ask("SELECT evaluation_id, kernel_id FROM evaluations")
    with store.open(pair.mine) as lake:
        found = lake.run(read_sql(get_verdict.__file__, "evaluation"), verdict).one()
    assert found is not None
    assert found["diagnosis"] == "memory_bandwidth"


@pytest.mark.slow
def test_analyses_that_say_the_same_stay_two_rows(pair: Pair) -> None:
    profiles = [
        {
            "analysis_id": name, "kernel_id": pair.kernel["kernel_id"], "kind": "profiler",
            "body": "tensor cores", "created_at": builders.at(minute),
        }
        for minute, name in enumerate("ab")
    ]  # fmt: skip
    pair.write({"analyses": profiles})
    assert pair.pull().rows["analyses"] == 2
    assert "analyses" not in pair.pull().rows


@pytest.mark.slow
def test_a_pulled_verdict_on_another_kernel_hides_no_ranking_by_another_precision(
    pair: Pair,
) -> None:
    task, kernel = builders.task("fourth", **MIT), builders.kernel("own", **MIT)
    workload = builders.workload(task)
    verdict = builders.evaluation(kernel, task, workload, pair.device, precision="fp32_strict")
    shared = {"tasks": [task], "workloads": [workload]}
    own = {
        "kernels": [kernel], "evaluations": [verdict],
        "task_labels": [builders.label(task, "level1/9", **MIT)],
        "timings": builders.session(verdict, [1.0] * 20, eager=[2.0] * 20),
    }  # fmt: skip
    pair.write(shared | own, mine=True)
    query = 'SELECT kernel_id, speedup, "precision" FROM best_kernels WHERE task_id = $1'
    before = pair.ask(query, task["task_id"])
    assert [row["precision"] for row in before] == ["fp32_strict"]
    junk = builders.kernel("junk", **MIT)
    crash = builders.evaluation(
        junk, task, workload, pair.device, "crash", precision="torch_default"
    )
    pair.write(shared | {"kernels": [junk], "evaluations": [crash]})
    assert pair.pull().rows["evaluations"] == 1
    assert pair.ask(query, task["task_id"]) == before


@pytest.mark.slow
def test_verdicts_and_timings_that_were_pulled_first_do_not_keep_own_ones_out(pair: Pair) -> None:
    kernel = builders.kernel("later", **MIT)
    verdict = builders.evaluation(kernel, pair.task, pair.workload, pair.device)
    session = builders.session(verdict, [1.0] * 20, eager=[2.0] * 20)
    forged = verdict | {"status": "incorrect", "reason": "unspecified"}
    slow = [one | {"samples_ms": [1e3] * 20} for one in session]
    pair.write({"kernels": [kernel], "evaluations": [forged], "timings": slow})
    assert pair.pull().rows["timings"] == len(session)
    # An importer brings the rows that the other lake has changed, under the same ids.
    pair.write({"evaluations": [verdict], "timings": session}, mine=True)
    [found] = pair.ask("SELECT * FROM verdicts WHERE kernel_id = $1", kernel["kernel_id"])
    assert found["status"] == "correct"
    speeds = pair.ask("SELECT speedup FROM speedups WHERE kernel_id = $1", kernel["kernel_id"])
    assert speeds == [{"speedup": 2.0}]


@pytest.mark.slow
def test_a_pulled_withdrawal_takes_back_only_verdicts_of_its_own_lake(pair: Pair) -> None:
    own = builders.evaluation(pair.kernel, pair.task, pair.workload, pair.device)
    kernel = builders.kernel("later", **MIT)
    failed = builders.evaluation(kernel, pair.task, pair.workload, pair.device, "compile_error")
    rows = [own, failed]
    rows += [
        verdict
        | {
            "evaluation_id": f"takes back {number}", "status": "evaluator_error",
            "reason": "host_unfit", "withdraws": verdict["evaluation_id"],
        }
        for number, verdict in enumerate(rows)
    ]  # fmt: skip
    pair.write({"kernels": [kernel], "evaluations": rows})
    pair.pull()
    verdicts = pair.ask("SELECT kernel_id, status FROM verdicts")
    assert verdicts == [{"kernel_id": pair.kernel["kernel_id"], "status": "correct"}]
    counted = pair.ask("FROM counted_evaluations WHERE status <> 'evaluator_error'")
    assert [row["evaluation_id"] for row in counted] == [own["evaluation_id"]]
    assert len(pair.ask("FROM evaluations WHERE withdraws IS NOT NULL")) == 2


@pytest.mark.slow
def test_no_step_of_another_lake_joins_a_session_of_this_lake(pair: Pair) -> None:
    session = {
        "session_id": "own", "policy_id": pair.policy["policy_id"], "source": "tests",
        "created_at": builders.at(1), **MIT,
    }  # fmt: skip
    step = {"session_id": "own", "step": 0, "role": "assistant", "created_at": builders.at(1)}
    forged = step | {"step": 1, "content": "I cheated."}
    call = {"session_id": "own", "step": 0, "call_index": 0, "tool": "Bash"}
    pair.write({"sessions": [session], "session_steps": [step]}, mine=True)
    pair.write({"policies": [pair.policy], "sessions": [session]})
    pair.write({"session_steps": [step, forged], "tool_calls": [call]})
    notices = " ".join(pair.pull().notices)
    assert "kept out of session_steps: 1 that would join this lake's sessions" in notices
    assert "kept out of tool_calls: 1 that would join this lake's sessions" in notices
    assert pair.ask("SELECT step FROM session_steps") == [{"step": 0}]
