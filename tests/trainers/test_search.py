"""Searches in rounds: arms that do not see each other, resuming, budgets, and the curves."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import builders
import commands
import pytest
from chat_server import ChatServer, completion
from pipeline_lakes import Known, Rows, add_small_rows

import store
from evaluators.scheduling.pool import Pair
from pipelines import ExemplarOptions
from store import ids
from store.commandline.echo import Progress, ignore_progress
from store.errors import FlywheelError
from trainers.cli.app import rollout
from trainers.policies.interface import (
    Asked,
    Budget,
    Completion,
    Policy,
    Prices,
    Sampling,
    Serving,
    open_policy,
)
from trainers.rollouts.prompts import load_prompts
from trainers.rollouts.waves import Config, RolloutResult, Search, run_search

ISOLATION = Path(__file__).parents[2] / "docs" / "runs" / "isolation.sql"
ANSWER = """```python
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x  # {number} runs at {speed:.2f}x
```"""


@dataclass
class Climber:
    """A policy whose answers are a little faster than the fastest kernel of the prompt."""

    name: str = "climber"
    stop_after: int | None = None
    """Number of prompts after which the process is interrupted."""
    prompts: int = 0
    sizes: list[int] = field(default_factory=list[int])

    @property
    def row(self) -> dict[str, Any]:
        return {
            "policy_id": ids.content_id("script", self.name),
            "name": self.name,
            "kind": "script",
        }

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        self.sizes.append(len(asked.prompts) * asked.n)
        for index, messages in enumerate(asked.prompts):
            if self.stop_after is not None and self.prompts >= self.stop_after:
                raise KeyboardInterrupt
            self.prompts += 1
            text = messages[-1]["content"]
            seed = asked.sampling.seed if asked.seeds is None else asked.seeds[index]
            shown = [float(one) for one in re.findall(r"^### Kernel \d+: ([\d.]+)x", text, re.M)]
            speed = max(shown, default=1.0)
            yield (
                index,
                [
                    Completion(
                        text=ANSWER.format(
                            number=ids.content_id(text, str(seed), str(place))[:8],
                            speed=speed + 0.1 * (place + 1),
                        ),
                        finish_reason="stop",
                        prompt_tokens=1,
                        completion_tokens=1,
                    )
                    for place in range(asked.n)
                ],
            )

    def close(self) -> None:
        return


@dataclass
class Stopwatch:
    """A judge that stores a session with the speedup that the kernel's comment names."""

    lake: str
    model: str = "H200"
    disturbed: bool = False
    judged: dict[Pair, str] = field(default_factory=dict[Pair, str])

    @dataclass
    class Verdict:
        status: str = "correct"
        quarantined: bool = False
        equivalent: bool = True

    @property
    def device(self) -> dict[str, str]:
        return {"name": self.model}

    def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Any]:
        with store.open(self.lake) as lake:
            texts = {
                row["kernel_id"]: row["code"]
                for row in lake.run("SELECT kernel_id, code FROM kernels").rows()
            }
        rows: dict[str, list[dict[str, Any]]] = {"evaluations": [], "timings": [], "scans": []}
        for kernel, task in dict.fromkeys(wanted):
            if (kernel, task) in self.judged:
                continue
            self.judged[kernel, task] = "correct"
            speed = float(re.search(r"at ([\d.]+)x", texts[kernel])[1])  # type: ignore[index]
            evaluation = builders.evaluation(
                {"kernel_id": kernel},
                {"task_id": task},
                {"workload_id": ids.workload_id(task)},
                builders.device(self.model, kind="cuda"),
            )
            rows["evaluations"].append(evaluation)
            rows["scans"].append(builders.scan({"kernel_id": kernel}))
            session = builders.session(evaluation, [1.0] * 7, eager=[speed] * 7)
            rows["timings"] += [row | {"disturbed": self.disturbed} for row in session]
        with store.writer(self.lake, author="judge") as writer:
            writer.append(rows, "verdicts")
        return {pair: Stopwatch.Verdict() for pair in wanted}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> tuple[Path, Known]:
    """Return the folder of a lake with a dataset of its test tasks, and its ids by role."""
    folder = tmp_path_factory.mktemp("searches")
    shutil.copytree(empty_lake, folder / "lake")
    rows = Rows()
    rows.device()
    rows.policy("writer", stage="base", round=0)
    known = add_small_rows(rows)
    rows.task("cumprod", family="scan", split="test")
    with store.writer(str(folder / "lake"), author="tests") as writer:
        writer.append(rows.tables, "rows")
    done = commands.run(
        ["pipelines", "run", "rl-prompts", "--purpose", "eval", "--lake", "lake", "--out", "data"],
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder, known


@pytest.fixture
def lake(prepared: tuple[Path, Known], tmp_path: Path) -> str:
    shutil.copytree(prepared[0], tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "lake")


def search(
    lake: str,
    policy: Policy | Sequence[Policy],
    *strategies: Any,
    attempts: int = 4,
    rounds: int = 2,
    told: Progress = ignore_progress,
    tasks: slice = slice(None),
    sampling: Sampling | None = None,
    exemplars: ExemplarOptions | None = None,
    judge: Stopwatch | None = None,
    **more: Any,
) -> RolloutResult:
    with store.open(lake) as opened:
        prompts = load_prompts(opened, str(Path(lake).parent / "data"))[tasks]
    return run_search(
        lake,
        policy if isinstance(policy, Sequence) else [policy],
        prompts,
        sampling or Sampling(max_tokens=50, seed=more.pop("seed", 7)),
        Config(attempts=attempts),
        Search(rounds=rounds, strategy=strategies, **more),
        exemplars or ExemplarOptions(),
        judge or Stopwatch(lake),
        told,
    )


def rows_of(lake: str, query: str) -> list[dict[str, Any]]:
    with store.open(lake) as opened:
        return opened.sql(query).rows()


def attempts_of(lake: str) -> list[dict[str, Any]]:
    return rows_of(lake, "SELECT * FROM generations WHERE namespace IS NOT NULL ORDER BY ALL")


def arm_of(row: dict[str, Any]) -> str:
    return row["namespace"].split("/")[1]


@pytest.mark.slow
def test_arms_of_one_lake_show_their_own_kernels_and_the_common_ones(
    lake: str, prepared: tuple[Path, Known]
) -> None:
    policy = Climber()
    outcome = search(lake, policy, "bucket", "random", "none", attempts=4, seed=8)
    stored = attempts_of(lake)
    # 2 tasks, 4 attempts of each of 3 arms; the arms of a round are sampled together.
    assert Counter(map(arm_of, stored)) == {"bucket": 8, "random": 8, "none": 8}
    assert policy.sizes == [12, 12]
    assert outcome.tallies[0].attempts == 24
    assert {row["step"] for row in stored} == {1, 2}
    found = {row["namespace"].split("/")[1]: row for row in rows_of(lake, ISOLATION.read_text())}
    assert set(found) == {"bucket", "random"}
    for row in found.values():
        assert row["leaked"] == 0
        assert row["own"] > 0
        assert row["common"] > 0
    # A prompt that shows what only another arm wrote is seen by the query. The climber's answers to
    # prompts without kernels differ from all others.
    written = {row["kernel_id"] for row in stored if arm_of(row) == "bucket"}
    foreign = next(
        row for row in stored if arm_of(row) == "none" and row["kernel_id"] not in written
    )
    own = next(
        row
        for row in stored
        if arm_of(row) == "bucket" and row["step"] == 2 and row["task_id"] == foreign["task_id"]
    )
    leak = own | {
        "generation_id": "leak", "exemplar_kernel_ids": [foreign["kernel_id"]],
        "exemplar_scores": [1.0], "prompt_id": None,
    }  # fmt: skip
    with store.writer(lake, author="tests") as writer:
        writer.append({"generations": [leak]}, "leak")
    leaked = {row["namespace"]: row["leaked"] for row in rows_of(lake, ISOLATION.read_text())}
    assert leaked.pop(own["namespace"]) == 1
    assert set(leaked.values()) == {0}


@pytest.mark.slow
def test_later_rounds_show_what_earlier_rounds_measured(lake: str) -> None:
    search(lake, Climber(), "top", rounds=2, attempts=2)
    stored = attempts_of(lake)
    for row in stored:
        earlier = {
            one["kernel_id"]
            for one in stored
            if one["task_id"] == row["task_id"] and one["step"] < row["step"]
        }
        shown = set(row["exemplar_kernel_ids"])
        assert bool(shown & earlier) == (row["step"] > 1)
    [proof] = rows_of(lake, "SELECT bool_and(holds) AS holds FROM loop_proof")
    assert proof["holds"]


@pytest.mark.slow
def test_an_interrupted_round_goes_on_with_the_same_prompts(lake: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(lake, Climber(stop_after=6), "bucket", "random")
    before = attempts_of(lake)
    assert 0 < len(before) < 16
    # Attempts of the same groups that name snapshots of another lake.
    pulled = [
        row
        | {"generation_id": f"pulled {row['generation_id']}", "origin": "org/lake"}
        | {"lake_id": "another lake", "snapshot_id": 0}
        for row in before
    ]
    with store.writer(lake, author="tests") as writer:
        writer.append({"generations": pulled}, "a pull")
    search(lake, Climber(), "bucket", "random")
    stored = [row for row in attempts_of(lake) if row["origin"] is None]
    assert Counter((arm_of(row), row["task_id"], row["step"]) for row in stored) == {
        (arm, task, step): 2
        for arm in ("bucket", "random")
        for task in {row["task_id"] for row in stored}
        for step in (1, 2)
    }
    kept = {row["generation_id"] for row in before}
    assert kept <= {row["generation_id"] for row in stored}
    for step in (1, 2):
        prompts = {(row["namespace"], row["task_id"], row["prompt_id"], row["snapshot_id"])
                   for row in stored if row["step"] == step}  # fmt: skip
        assert len(prompts) == 4
    last = search(lake, Climber(), "bucket", "random")
    assert (last.run_id, last.tallies[0].attempts) == (None, 0)


@pytest.mark.slow
def test_arms_start_from_the_same_answers_where_nothing_is_measured(lake: str) -> None:
    search(lake, Climber(), "bucket", "random", rounds=1, attempts=2)
    [unmeasured] = rows_of(lake, "SELECT task_id FROM task_names WHERE task = 'cumprod'")
    written = {
        (arm_of(row), row["kernel_id"])
        for row in attempts_of(lake)
        if row["task_id"] == unmeasured["task_id"]
    }
    by_arm = [{kernel for arm, kernel in written if arm == name} for name in ("bucket", "random")]
    assert by_arm[0] == by_arm[1]


@pytest.mark.slow
def test_no_round_begins_after_the_budget(lake: str) -> None:
    first = search(lake, Climber(), "bucket", attempts=4, rounds=2, budget_s=1e-6)
    assert {row["step"] for row in attempts_of(lake)} == {1}
    # The seconds of the first command count.
    second = search(lake, Climber(), "bucket", attempts=4, rounds=2, budget_s=1e-6)
    assert (first.tallies[0].attempts, second.run_id) == (4, None)
    assert "is spent before round 2" in str(second.tallies[0].stopped)
    search(lake, Climber(), "bucket", attempts=4, rounds=2)
    assert {row["step"] for row in attempts_of(lake)} == {1, 2}


@pytest.mark.slow
def test_searches_of_other_names_and_seeds_are_apart(lake: str) -> None:
    search(lake, Climber(), "bucket", rounds=1, attempts=1)
    search(lake, Climber(), "bucket", rounds=1, attempts=1, seed=8)
    search(lake, Climber(), "bucket", rounds=1, attempts=1, search="other")
    names = {row["namespace"].rpartition("/")[0] for row in attempts_of(lake)}
    assert names == {"search/bucket/7", "search/bucket/8", "other/bucket/7"}


@pytest.mark.slow
def test_policies_have_arms_of_their_own_with_the_same_seed(lake: str) -> None:
    policies = [Climber("one"), Climber("two")]
    search(lake, policies, "bucket", rounds=1, attempts=1)
    names = {row["namespace"] for row in attempts_of(lake)}
    assert names == {f"search/bucket/7/{one.row['policy_id'][:12]}" for one in policies}


def test_attempts_that_cannot_be_divided_are_refused(lake: str) -> None:
    with pytest.raises(FlywheelError, match="--attempts 5 cannot be divided into --rounds 2"):
        search(lake, Climber(), "bucket", attempts=5, rounds=2)


@pytest.mark.slow
def test_several_seeds_are_searched_side_by_side_as_they_are_one_by_one(lake: str) -> None:
    search(lake, Climber(), "bucket", "none")
    alone = attempts_of(lake)
    policy = Climber()
    both = search(lake, policy, "bucket", "none", seeds=2)
    # Seed 7 is there already, so only seed 8 is sampled: 2 tasks, 2 arms, 2 rounds of 2 attempts.
    assert both.tallies[0].attempts == 16
    assert policy.sizes == [8, 8]
    stored = attempts_of(lake)
    assert [row for row in stored if "/7/" in row["namespace"]] == alone
    assert {row["namespace"].split("/")[2] for row in stored} == {"7", "8"}
    found = rows_of(lake, ISOLATION.read_text())
    assert [row["leaked"] for row in found] == [0, 0]
    assert all(row["own"] > 0 for row in found)
    with pytest.raises(FlywheelError, match="--seeds 2 needs the first seed"):
        search(lake, Climber(), "bucket", seed=None, seeds=2)


@pytest.mark.slow
def test_the_progress_counts_the_attempts_of_all_missing_rounds(lake: str) -> None:
    counted: list[tuple[int, int, str]] = []
    search(lake, Climber(), "bucket", told=lambda *one: counted.append(one))
    # 2 tasks, 2 rounds of 2 attempts; one count for each prompt.
    assert [one[:2] for one in counted] == [(2, 8), (4, 8), (6, 8), (8, 8)]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sampling": Sampling(max_tokens=50, seed=7, temperature=0.1)},
     "--temperature was 1.0 and is now 0.1"),
    ({"sampling": Sampling(max_tokens=40, seed=7)}, "--max-tokens was 50 and is now 40"),
    ({"attempts": 8}, "--attempts / --rounds was 2 and is now 4"),
    ({"pipeline": "rl-prompts"}, "--pipeline was contrastive-batch and is now rl-prompts"),
    ({"exemplars": ExemplarOptions(exemplars=3)}, "--draw.exemplars was 2 and is now 3"),
    ({"tasks": slice(1)}, "number of tasks of --dataset and --limit was 2 and is now 1"),
]  # fmt: skip


@pytest.mark.slow
def test_a_name_is_continued_only_by_the_same_search(lake: str) -> None:
    search(lake, Climber(), "none", rounds=2, attempts=4)
    before = attempts_of(lake)
    for options, words in REFUSED:
        with pytest.raises(FlywheelError, match=re.escape(words)) as refused:
            search(lake, Climber(), "none", "bucket", **options)
        assert "choose another --search" in str(refused.value)
    assert attempts_of(lake) == before


@pytest.mark.slow
def test_no_seed_does_not_continue_a_search_with_seed_0(lake: str) -> None:
    search(lake, Climber(), "none", seed=0)
    with pytest.raises(FlywheelError, match="--seed was given, and now it is not"):
        search(lake, Climber(), "none", seed=None)


@pytest.mark.slow
def test_another_dataset_of_as_many_tasks_does_not_continue_a_search(lake: str) -> None:
    search(lake, Climber(), "none", tasks=slice(0, 1))
    with pytest.raises(FlywheelError, match="the tasks of --dataset and --limit differ"):
        search(lake, Climber(), "none", tasks=slice(1, 2))


HOLD = """
import sys, store
with store.Location.of(sys.argv[1]).open_leases() as leases:
    assert leases.take([sys.argv[2]])
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_two_commands_do_not_work_on_one_arm(lake: str) -> None:
    search(lake, Climber(), "random", attempts=2, rounds=1)
    [namespace] = {row["namespace"] for row in attempts_of(lake)}
    words = [sys.executable, "-c", HOLD, lake, f"search {namespace}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        before = attempts_of(lake)
        with pytest.raises(FlywheelError, match=f"another command works on {namespace}"):
            search(lake, Climber(), "random", "top")
        assert attempts_of(lake) == before
        more = search(lake, Climber(), "random", attempts=2, rounds=1, seed=8)
        assert more.tallies[0].attempts > 0
        other.communicate()
    assert search(lake, Climber(), "random").tallies[0].attempts > 0


@pytest.mark.slow
def test_more_rounds_of_as_many_attempts_extend_a_search(lake: str) -> None:
    search(lake, Climber(), "bucket", rounds=1, attempts=2)
    before = attempts_of(lake)
    search(lake, Climber(), "bucket", rounds=2, attempts=4)
    stored = attempts_of(lake)
    assert {row["step"] for row in stored} == {1, 2}
    assert [row for row in stored if row["step"] == 1] == before


@pytest.mark.parametrize("name", ["earlier", "a/b", "", "a b", "../x", "a%"])
def test_names_that_no_namespace_can_have_are_refused(name: str) -> None:
    with pytest.raises(FlywheelError, match="cannot name a search"):
        Search(rounds=1, search=name)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_seconds_that_are_no_limit_are_refused(seconds: float) -> None:
    with pytest.raises(FlywheelError, match="is no limit"):
        Search(rounds=1, budget_s=seconds)


def test_options_of_a_search_without_rounds_are_refused() -> None:
    with pytest.raises(FlywheelError, match="need --rounds: --strategy, --search"):
        Search(search="e1", strategy=("none",))
    with pytest.raises(FlywheelError, match=r"need --rounds: --draw"):
        rollout(dataset="data", policy=["hf:x"], draw=ExemplarOptions(exemplars=3))


@pytest.mark.slow
def test_a_search_that_goes_on_judges_on_its_own_device(lake: str) -> None:
    class Killed(Stopwatch):
        def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Any]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(lake, Climber(), "top", rounds=1, attempts=2, judge=Killed(lake))
    made = {(row["kernel_id"], row["task_id"]) for row in attempts_of(lake)}
    with store.writer(lake, author="tests") as writer:
        writer.append({"devices": [builders.device("B200", kind="cuda")]}, "another GPU")
    Stopwatch(lake, model="B200").judge(sorted(made))
    here = Stopwatch(lake)
    search(lake, Climber(), "top", rounds=1, attempts=2, judge=here)
    assert set(here.judged) == made


@pytest.mark.slow
def test_seconds_of_a_killed_command_count_until_its_last_attempt(lake: str) -> None:
    search(lake, Climber(), "bucket")
    [run] = rows_of(lake, "FROM runs WHERE name = 'search'")
    first = attempts_of(lake)[0]
    begun = run["started_at"]

    def read() -> float:
        [row] = rows_of(lake, "SELECT sum(seconds) AS seconds FROM search_rounds")
        return row["seconds"]

    def add(**rows: Any) -> None:
        with store.writer(lake, author="tests") as writer:
            writer.append({table: [row] for table, row in rows.items()}, "rows")

    def attempt(step: int, after_s: float) -> dict[str, Any]:
        return first | {
            "generation_id": ids.uuid7(), "run_id": "killed", "step": step,
            "created_at": begun + timedelta(seconds=after_s),
        }  # fmt: skip

    finished = read()
    assert finished == pytest.approx(
        rows_of(lake, "SELECT sum(value) AS s FROM metrics WHERE name = 'search/seconds'")[0]["s"]
    )
    add(runs=run | {"run_id": "killed"}, generations=attempt(1, 7))
    assert read() == pytest.approx(finished + 7)
    metric = {"run_id": "killed", "name": "search/seconds", "step": 1, "value": 9.0}
    add(metrics=metric | {"created_at": begun + timedelta(seconds=9)}, generations=attempt(2, 12))
    assert read() == pytest.approx(finished + 9 + 3)
    [curve] = rows_of(lake, "SELECT max(seconds) AS seconds FROM search_curves")
    assert curve["seconds"] == pytest.approx(finished + 9 + 3)


@pytest.mark.slow
def test_an_interrupted_round_stores_its_seconds(lake: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(lake, Climber(stop_after=1), "bucket")
    assert rows_of(lake, "SELECT step FROM metrics WHERE name = 'search/seconds'") == [{"step": 1}]
    states = "SELECT kind, state FROM run_states WHERE kind = 'rollout'"
    assert rows_of(lake, states) == [{"kind": "rollout", "state": "interrupted"}]


@pytest.mark.slow
def test_budgets_count_what_other_arms_and_seeds_of_the_search_have_spent(lake: str) -> None:
    with ChatServer(lambda asked: completion(["no"])) as server:
        first = open_policy(f"{server.url}#m", Serving(concurrency=1))
        search(lake, first, "none", attempts=2)
        budget = Budget()
        second = open_policy(f"{server.url}#m", Serving(budget=budget))
        search(lake, second, "bucket", attempts=2, seed=8, budget_s=1e-6)
    spent = sum(row["prompt_tokens"] + row["completion_tokens"] for row in attempts_of(lake))
    assert budget.spent_tokens == spent > 0
    assert {row["namespace"].split("/")[1] for row in attempts_of(lake)} == {"none"}


def test_a_pipeline_that_shows_kernels_of_all_arms_is_refused(lake: str) -> None:
    with pytest.raises(FlywheelError, match="improvement-pairs cannot make the prompts"):
        search(lake, Climber(), "bucket", pipeline="improvement-pairs")
    assert attempts_of(lake) == []


@pytest.mark.slow
def test_budgets_count_what_earlier_commands_of_the_search_have_spent(lake: str) -> None:
    text = ANSWER.format(number=1, speed=1.5)
    prices = Prices(usd_per_mtok_in=1000, usd_per_mtok_out=1000)
    with ChatServer(lambda asked: completion([text] * asked.get("n", 1))) as server:

        def spend(budget: Budget, name: str) -> RolloutResult:
            serving = Serving(budget=budget, concurrency=1, prices=prices)
            one = open_policy(f"{server.url}#m", serving)
            return search(lake, one, "none", attempts=2, search=name)

        # An attempt takes 15 tokens: 10 of the prompt and 5 of the answer.
        assert spend(Budget(usd=100), "money").tallies[0].attempts == 4
        again = Budget(usd=100)
        assert spend(again, "money").run_id is None
        assert (again.spent_tokens, again.spent_usd) == (60, pytest.approx(0.06))
        assert spend(Budget(tokens=10**6), "tokens").tallies[0].attempts == 4
        with store.open(lake) as opened:
            assert len(opened.sql("FROM generations WHERE namespace LIKE 'tokens/%'").rows()) == 4
        more = search(
            lake,
            open_policy(f"{server.url}#m", Serving(budget=Budget(tokens=61))),
            "none",
            attempts=3,
            rounds=3,
            search="tokens",
        )
    assert more.tallies[0].attempts == 0
    assert "60 tokens" in str(more.tallies[0].stopped)


@pytest.mark.slow
def test_an_arm_that_can_show_no_kernel_says_why(
    lake: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        search(lake, Climber(), "bucket", "none", tasks=slice(1), search="quiet")
    assert "shows a kernel with a score" not in caplog.text
    with store.writer(lake, author="tests") as writer:
        writer.append({"devices": [builders.device("A100", kind="cuda")]}, "device")
    judge = Stopwatch(lake, "A100", disturbed=True)
    with caplog.at_level(logging.WARNING):
        search(lake, Climber(), "bucket", "none", tasks=slice(1), judge=judge)
    assert (
        "no prompt of variant bucket in round 2 shows a kernel with a score: the search has 2 of "
        "its own without one (only sessions that rank nothing: 2)" in caplog.text
    )
    assert "variant none" not in caplog.text
