"""Rollouts: waves, stopping, what is stored, and going on after any interruption."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import chat_server
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer, completion, status
from pipeline_lakes import Known, Rows, add_small_rows

import store
from evaluators.scheduling.pool import Pair
from store.commandline.members import Common
from store.errors import DatasetError, FlywheelError, UnknownName
from trainers.cli.app import rollout
from trainers.datasets import records
from trainers.policies.interface import (
    Budget,
    EndpointFailed,
    Policy,
    Sampling,
    Serving,
    open_policy,
)
from trainers.rollouts.attempts import ShownPrompt
from trainers.rollouts.prompts import load_prompts
from trainers.rollouts.waves import Config, RolloutResult, make_group_id, run_rollout

GOOD = """```python
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.{}(x)  # {}
```"""


@dataclass
class Made:
    """A lake with two datasets, to be copied."""

    folder: Path
    known: Known
    contrastive: Path
    snapshot: int


@pytest.fixture(scope="session")
def made_lake(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Made:
    folder = tmp_path_factory.mktemp("rollouts")
    shutil.copytree(empty_lake, folder / "lake")
    rows = Rows()
    rows.device()
    rows.policy("writer", stage="base", round=0)
    known = add_small_rows(rows)
    with store.writer(str(folder / "lake"), author="tests") as writer:
        writer.append(rows.tables, "rows")
    before = Path.cwd()
    os.chdir(folder)
    try:
        one = records.make_dataset("lake", "contrastive-batch")
        records.make_dataset("lake", "rl-prompts", device_kind="cpu")
    finally:
        os.chdir(before)
    return Made(folder, known, one.folder, one.snapshot_id)


@pytest.fixture
def lake(made_lake: Made, tmp_path: Path) -> str:
    shutil.copytree(made_lake.folder / "lake", tmp_path / "lake")
    return str(tmp_path / "lake")


@dataclass
class Judge:
    """Says that kernels with the word right are; remembers what it was asked."""

    asked: list[Pair] = field(default_factory=list[Pair])
    lake: str = ""

    @dataclass
    class Verdict:
        status: str
        quarantined: bool = False
        equivalent: bool = True

    def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Any]:
        self.asked += wanted
        with store.open(self.lake) as lake:
            texts = {
                row["kernel_id"]: row["code"]
                for row in lake.run("SELECT kernel_id, code FROM kernels").rows()
            }
        return {
            pair: Judge.Verdict("correct" if "right" in texts[pair[0]] else "incorrect")
            for pair in wanted
        }


def open_scripted(tmp_path: Path, *texts: str, **more: Any) -> Policy:
    file = tmp_path / "script.jsonl"
    file.write_text("\n".join(json.dumps({"text": text} | more) for text in texts))
    return open_policy(f"scripted:{file}")


def number_kernels(word: str, count: int) -> list[str]:
    return [GOOD.format("relu", f"{word} {place}") for place in range(count)]


def roll(
    lake: str,
    *policies: Policy,
    dataset: str = "rl-prompts",
    judge: Judge | None = None,
    limit: int | None = None,
    seed: int | None = None,
    training: str | None = None,
    **config: Any,
) -> RolloutResult:
    with store.open(lake) as opened:
        asked = load_prompts(opened, dataset, limit)
    if judge is not None:
        judge.lake = lake
    sampling = Sampling(max_tokens=50, seed=seed)
    return run_rollout(
        lake,
        policies,
        asked,
        sampling,
        Config(**config),
        None if judge is None else lambda: judge,
        lambda *told: None,
        told={},
        training=training,
    )


def rows_of(lake: str, query: str) -> list[dict[str, Any]]:
    with store.open(lake) as opened:
        return opened.run(query).rows()


def folder_of(tmp_path: Path, *rows: dict[str, Any]) -> str:
    """Write rows as a dataset folder of somebody's own."""
    folder = tmp_path / "own"
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "a.parquet")
    return str(folder)


def attempts_of(lake: str) -> list[dict[str, Any]]:
    return rows_of(
        lake, "SELECT * FROM generations WHERE source = 'trainers' ORDER BY task_id, sample_index"
    )


@pytest.mark.slow
def test_sampling_stops_once_enough_is_right(lake: str, made_lake: Made, tmp_path: Path) -> None:
    wrong, right = number_kernels("wrong", 3), number_kernels("right", 9)
    judge = Judge()
    one = open_scripted(tmp_path, wrong[0], right[0], wrong[1], right[1], *right[2:])
    outcome = roll(lake, one, judge=judge, attempts=20, keep=2, wave=2, limit=1)
    assert [row["sample_index"] for row in attempts_of(lake)] == [0, 1, 2, 3]
    assert (outcome.tallies[0].attempts, outcome.tallies[0].correct) == (4, 2)
    assert len(judge.asked) == len(set(judge.asked)) == 4
    assert str(outcome).startswith("generations +4 kernels 4 correct 2 → snapshot ")


@pytest.mark.slow
def test_attempts_are_bounded_where_nothing_is_right(lake: str, tmp_path: Path) -> None:
    one = open_scripted(tmp_path, *number_kernels("wrong", 2), "I cannot.")
    outcome = roll(lake, one, judge=Judge(), attempts=7, keep=2, wave=4)
    by_task = Counter(row["task_id"] for row in attempts_of(lake))
    assert set(by_task.values()) == {7}
    assert outcome.tallies[0].no_kernel == 2 * len(by_task)


@pytest.mark.slow
def test_the_same_right_kernel_again_is_one(lake: str, tmp_path: Path) -> None:
    outcome = roll(
        lake,
        open_scripted(tmp_path, *number_kernels("right", 1)),
        judge=Judge(),
        attempts=4,
        keep=2,
        limit=1,
    )
    assert (outcome.tallies[0].attempts, outcome.tallies[0].correct) == (4, 1)


@pytest.mark.slow
def test_a_second_run_asks_for_nothing_that_is_stored(lake: str, tmp_path: Path) -> None:
    texts = number_kernels("wrong", 9)
    judge = Judge()
    first = roll(lake, open_scripted(tmp_path, *texts), judge=judge, attempts=1, limit=2)
    assert first.run_id is not None
    again = roll(lake, open_scripted(tmp_path, *texts), judge=judge, attempts=1, limit=2)
    assert (again.run_id, again.tallies[0].attempts) == (None, 0)
    more = roll(lake, open_scripted(tmp_path, *texts), judge=judge, attempts=2, limit=2)
    assert more.tallies[0].attempts == 2
    stored = attempts_of(lake)
    assert [row["sample_index"] for row in stored] == [0, 1] * 2
    assert len({row["group_id"] for row in stored}) == 2
    assert len(rows_of(lake, "FROM runs WHERE kind = 'rollout'")) == 2


@pytest.mark.slow
def test_what_was_sampled_without_a_judge_is_judged_before_more_is_asked_for(
    lake: str, tmp_path: Path
) -> None:
    one = open_scripted(tmp_path, *number_kernels("right", 2))
    first = roll(lake, one, attempts=3, limit=1)
    assert (first.tallies[0].attempts, first.tallies[0].correct) == (3, 0)
    judge = Judge()
    again = roll(lake, one, judge=judge, attempts=20, keep=2, limit=1)
    assert again.tallies[0].attempts == 0
    assert len(judge.asked) == 2


@pytest.mark.slow
def test_a_seed_moves_on_from_wave_to_wave(lake: str, tmp_path: Path) -> None:
    roll(lake, open_scripted(tmp_path, "no"), attempts=4, wave=2, limit=1, seed=5)
    seeds = [json.loads(row["sampling"])["seed"] for row in attempts_of(lake)]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3]


SHOWN = ShownPrompt(
    task_id="t", messages=[{"role": "user", "content": "a"}], template_hash=None,
    purpose="train", exemplar_kernel_ids=[], exemplar_scores=[], lake_id="l", snapshot_id=1,
)  # fmt: skip


def test_what_a_group_is() -> None:
    asked, same = SHOWN, Sampling(seed=1)
    groups = {
        make_group_id(asked, "p", same),
        make_group_id(asked, "q", same),
        make_group_id(asked, "p", replace(same, seed=2)),
        make_group_id(replace(asked, snapshot_id=2), "p", same),
        make_group_id(replace(asked, messages=[{"role": "user", "content": "b"}]), "p", same),
    }
    assert len(groups) == 5
    assert make_group_id(replace(asked), "p", Sampling(seed=1)) in groups
    bare = replace(asked, snapshot_id=None)
    assert (
        len(groups | {make_group_id(replace(bare, task_id=task), "p", same) for task in "tu"}) == 7
    )


@pytest.mark.slow
def test_attempts_of_one_training_are_none_of_another(lake: str, tmp_path: Path) -> None:
    """Trainings from the same model and prompts may run at the same time."""
    policy = open_scripted(tmp_path, *number_kernels("right", 3))
    for run in ("first", "second", "second"):
        roll(lake, policy, training=run, attempts=2, keep=0)
    groups = Counter(row["group_id"] for row in attempts_of(lake))
    tasks = {row["task_id"] for row in attempts_of(lake)}
    assert sorted(groups.values()) == [2] * (2 * len(tasks))


def test_stored_groups_of_a_snapshot_are_found() -> None:
    stored = "7f74416f6e6b5442ab16d26b599a39188a7b0a4ebe6e9eef4b8cdd22c70e2dff"
    assert make_group_id(SHOWN, "p", Sampling()) == stored


@pytest.mark.slow
def test_rows_carry_what_the_prompt_showed(lake: str, made_lake: Made, tmp_path: Path) -> None:
    text = "### Performance Analysis\nFastest: Kernel 2.\n\n" + GOOD.format("relu", "x")
    roll(lake, open_scripted(tmp_path, text), dataset="contrastive-batch", attempts=1)
    shown = pq.ParquetFile(next(made_lake.contrastive.rglob("*.parquet"))).read().to_pylist()
    by_prompt = {row["prompt_id"]: row for row in shown}
    stored = attempts_of(lake)
    assert len(stored) == len(shown)
    for row in stored:
        told = by_prompt[row["prompt_id"]]
        assert row["task_id"] == told["task_id"]
        assert row["exemplar_kernel_ids"] == told["exemplar_kernel_ids"]
        assert row["exemplar_scores"] == told["exemplar_scores"]
        assert (row["lake_id"], row["snapshot_id"]) == (told["lake_id"], told["snapshot_id"])
    named = rows_of(
        lake,
        "SELECT fastest_kernel_id = exemplar_kernel_ids[2] AS right FROM analyses "
        "JOIN generations USING (generation_id) WHERE len(exemplar_kernel_ids) > 1",
    )
    assert named
    assert all(row["right"] for row in named)
    policies = rows_of(lake, "SELECT kind FROM policies WHERE name = 'script'")
    assert policies == [{"kind": "script"}]


@pytest.mark.slow
def test_prompts_of_one_task_take_turns(lake: str, made_lake: Made, tmp_path: Path) -> None:
    task = made_lake.known.relu
    rows = [{"prompt": text, "task_id": task} for text in ("first", "second", "second")]
    folder = folder_of(tmp_path, *rows)
    roll(lake, open_scripted(tmp_path, "no"), dataset=folder, attempts=5, wave=2)
    assert sorted(Counter(row["prompt_id"] for row in attempts_of(lake)).values()) == [2, 3]


@pytest.mark.slow
def test_an_attempt_that_the_endpoint_failed_is_a_row_and_asked_for_again(
    lake: str, tmp_path: Path
) -> None:
    with ChatServer(lambda asked: completion(["no"])) as server:
        server.faults = [chat_server.status(400, "too long")]
        one = open_policy(f"{server.url}#m", Serving(retries=0))
        outcome = roll(lake, one, attempts=1, limit=1)
        assert (outcome.tallies[0].attempts, outcome.tallies[0].failed) == (1, 1)
        again = roll(lake, one, attempts=1, limit=1)
        assert (again.tallies[0].attempts, again.tallies[0].failed) == (1, 0)
        assert roll(lake, one, attempts=1, limit=1).run_id is None
    stored = attempts_of(lake)
    assert [row["sample_index"] for row in stored] == [0, 1]
    assert [row["finish_reason"] for row in stored] == ["error", "stop"]
    assert "too long" in stored[0]["parse_error"]
    assert stored[0]["completion"] is None


@pytest.mark.slow
def test_a_spent_budget_keeps_what_came(lake: str, made_lake: Made, tmp_path: Path) -> None:
    row = {"prompt": "short", "task_id": made_lake.known.relu, "snapshot_id": made_lake.snapshot}
    folder = folder_of(tmp_path, row)
    with ChatServer(lambda asked: completion(["no"])) as server:
        budget = Budget(tokens=150)
        one = open_policy(f"{server.url}#m", Serving(budget=budget, concurrency=1))
        outcome = roll(lake, one, dataset=folder, attempts=20, wave=4)
        stopped = outcome.tallies[0].stopped
        assert stopped is not None
        assert "--budget-tokens" in str(stopped)
        # A request takes 15 tokens and may take 59.
        assert len(attempts_of(lake)) == len(server.requests) == outcome.tallies[0].attempts == 7
        assert budget.spent_tokens == 7 * 15
        again = Budget(tokens=150)
        one = open_policy(f"{server.url}#m", Serving(budget=again, concurrency=1))
        outcome = roll(lake, one, dataset=folder, attempts=20, wave=4)
        # The attempts of the first command count.
        assert (outcome.tallies[0].attempts, again.spent_tokens) == (0, 7 * 15)


@pytest.mark.slow
def test_one_lost_endpoint_does_not_stop_the_others(lake: str, tmp_path: Path) -> None:
    with socket.socket() as taken:  # nobody else listens there
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        gone = open_policy(f"{url}#m", Serving(retries=0))
        outcome = roll(lake, gone, open_scripted(tmp_path, "no"), attempts=1, limit=2)
    assert isinstance(outcome.tallies[0].stopped, EndpointFailed)
    assert [tally.attempts for tally in outcome.tallies] == [0, 2]
    with store.open(lake) as opened:
        query = "SELECT state, error FROM run_states WHERE run_id = $1"
        [row] = opened.sql(query, [outcome.run_id]).rows()
    assert (row["state"], row["error"]) == ("failed", outcome.tallies[0].stopped.message)


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    served = iter(range(10_000))

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        return completion([GOOD.format("relu", next(served)) for _ in range(asked.get("n", 1))])

    with ChatServer(answer) as server:
        yield server


def run_until(
    chat: ChatServer, lake: str, words: list[str], number: int, **options: Any
) -> subprocess.Popen[bytes]:
    """Return a rollout that has stored all answers but one, for which it waits.

    Args:
        number: The request of the answer that does not come.
    """
    plain = chat.answer

    def answer(asked: dict[str, Any]) -> Any:
        if len(chat.requests) == number - 1:
            chat.delay_s = 3600
        return plain(asked)

    chat.answer = answer
    command = [sys.executable, "-m", *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, **options)
    with store.writer(lake, author="tests") as writer:
        while len(chat.requests) < number or len(attempts_of(lake)) < 4 * (number - 1):
            assert process.poll() is None
            time.sleep(0.05)
            writer.flush()
    return process


def command(lake: str, chat: ChatServer, *more: str, dataset: str = "rl-prompts") -> list[str]:
    return [
        "trainers", "rollout", "--lake", lake, "--dataset", dataset,
        "--policy", f"{chat.url}#m", "--no-judge", "--attempts", "8", "--wave", "4",
        "--concurrency", "1", *more,
    ]  # fmt: skip


@pytest.mark.slow
def test_a_killed_rollout_goes_on_where_it_was(lake: str, tmp_path: Path, chat: ChatServer) -> None:
    environment = os.environ | {"OPENAI_API_KEY": "sk-never-to-be-stored"}
    words = command(lake, chat)
    killed = run_until(chat, lake, words, 4, cwd=tmp_path, env=environment)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    chat.delay_s = 0
    # Lost is the request under way.
    kept, before = len(attempts_of(lake)), len(chat.requests)
    assert (kept, before) == (12, 4)
    again = commands.run(words, cwd=tmp_path, env=environment)
    assert again.returncode == 0, again.stderr
    stored = attempts_of(lake)
    tasks = {row["task_id"] for row in stored}
    assert len(stored) == 8 * len(tasks)
    assert 4 * (len(chat.requests) - before) == len(stored) - kept
    assert {row["sample_index"] for row in stored} == set(range(8))
    assert len({(row["group_id"], row["sample_index"]) for row in stored}) == len(stored)
    assert re.fullmatch(rf"generations \+{len(stored) - kept} kernels .*\n", again.stdout)
    everything = json.dumps(
        [rows_of(lake, f"FROM {table}") for table in ("runs", "generations", "policies")],
        default=str,
    )
    assert "sk-never" not in everything + again.stdout + again.stderr
    assert chat.url not in json.dumps(
        rows_of(lake, "SELECT config FROM runs WHERE kind = 'rollout'")
    )


@pytest.mark.slow
def test_a_rollout_over_prompts_without_a_snapshot_goes_on_where_it_was(
    lake: str, made_lake: Made, tmp_path: Path, chat: ChatServer
) -> None:
    tasks = (made_lake.known.relu, made_lake.known.tanh)
    folder = folder_of(tmp_path, *({"prompt": f"make {one}", "task_id": one} for one in tasks))
    words = command(lake, chat, dataset=folder)
    stopped = run_until(chat, lake, words, 3, cwd=tmp_path)
    stopped.send_signal(signal.SIGINT)
    stopped.wait()
    chat.delay_s = 0
    kept, before = len(attempts_of(lake)), len(chat.requests)
    assert (kept, before) == (8, 3)
    again = commands.run(words, cwd=tmp_path)
    assert again.stdout.startswith(f"generations +{16 - kept} "), again.stderr
    assert 4 * (len(chat.requests) - before) == 16 - kept
    stored = attempts_of(lake)
    assert Counter(row["task_id"] for row in stored) == dict.fromkeys(tasks, 8)
    assert len({(row["group_id"], row["sample_index"]) for row in stored}) == len(stored)
    assert {row["snapshot_id"] for row in stored} == {None}
    last = commands.run(words, cwd=tmp_path)
    assert last.stdout.startswith("nothing left to attempt"), last.stderr


@pytest.mark.slow
def test_the_command_judges_what_it_sampled(lake: str, made_lake: Made, tmp_path: Path) -> None:
    lines = [
        {"text": GOOD.format("tanh", "right")},
        {"text": GOOD.format("exp", "wrong")},
        {"text": "I cannot help with that."},
    ]
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    row = {"prompt": [{"role": "user", "content": "tanh"}], "task_id": made_lake.known.tanh}
    folder = folder_of(tmp_path, row)
    ran = subprocess.run(
        [
            sys.executable, "-m", "trainers", "rollout", "--lake", lake, "--dataset", folder,
            "--policy", f"scripted:{tmp_path / 's.jsonl'}", "--attempts", "3", "--keep", "1",
            "--wave", "3", "--on", "cpu", "--evaluation.calls", "3", "--evaluation.timing-s",
            "0.1", "--evaluation.no-robustness", "--evaluation.no-diagnosis",
        ],
        cwd=tmp_path, env=os.environ | {"FLYWHEEL_CACHE": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(r"generations \+3 kernels 2 correct 1 → snapshot \d+\n", ran.stdout)
    assert "s: 3 attempts, 1 without code, 0 failed, 2 kernels, 1 correct" in ran.stderr
    verdicts = rows_of(
        lake,
        "SELECT status FROM evaluations JOIN generations USING (kernel_id, task_id) "
        "WHERE generations.source = 'trainers' AND protocol IS DISTINCT FROM 'shape' "
        "ORDER BY sample_index",
    )
    assert [row["status"] for row in verdicts] == ["correct", "incorrect"]


@pytest.mark.slow
def test_datasets_are_found_by_folder_name_snapshot_and_tag(lake: str, made_lake: Made) -> None:
    with store.writer(lake, author="tests") as writer:
        from store.upkeep import history

        history.add_tag(writer, "v1", made_lake.snapshot, "tests")
    with store.open(lake) as opened:
        found = [
            load_prompts(opened, wanted)
            for wanted in (
                str(made_lake.contrastive), "contrastive-batch", "contrastive-batch@v1",
                f"contrastive-batch@{made_lake.snapshot}",
            )
        ]  # fmt: skip
        assert all(one == found[0] for one in found)
        assert len(load_prompts(opened, "rl-prompts", 2)) == 2
        assert {one.purpose for one in found[0]} == {"train"}
        with pytest.raises(UnknownName, match='Did you mean "rl-prompts"'):
            load_prompts(opened, "rl-promts")
        with pytest.raises(UnknownName, match="of snapshot 1"):
            load_prompts(opened, "rl-prompts@1")


def test_a_dataset_whose_folder_is_gone(lake: str) -> None:
    with store.open(lake) as opened:
        row = opened.run("FROM datasets WHERE name = 'rl-prompts'").one()
        assert row is not None
    with store.writer(lake, author="tests") as writer:
        parts = ("gone", row["recipe"], row["lake_id"], str(row["snapshot_id"]))
        identity = store.ids.content_id("dataset", *parts, row["content_hash"])
        moved = row | {"dataset_id": identity, "name": "gone", "path": "/nowhere/at/all"}
        writer.append({"datasets": [moved]}, "gone")
    with store.open(lake) as opened, pytest.raises(DatasetError, match="is gone: /nowhere") as told:
        load_prompts(opened, "gone")
    assert f"pipelines run rl-prompts --at {row['snapshot_id']}" in str(told.value)
    assert "--out /nowhere/at/all`" in str(told.value)


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a"}, "has no column task_id"),
        ({"prompt": [{"role": "user"}], "task_id": "t"}, "neither text nor a list"),
        ({"prompt": "a", "task_id": "t" * 64}, "about 1 tasks that the lake"),
        ({"prompt": "a", "task_id": "t", "prompt_id": "0" * 64}, "was changed"),
        (
            {"prompt": "a", "task_id": "t", "exemplar_kernel_ids": ["k"], "exemplar_scores": [1.0]},
            "about 1 tasks",
        ),
        (
            {"prompt": "a", "task_id": "t", "exemplar_kernel_ids": ["k"], "exemplar_scores": []},
            "1 exemplars and 0 scores",
        ),
    ],
)
def test_folders_that_are_no_dataset_of_this_lake(
    lake: str, tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    folder = folder_of(tmp_path, row)
    with store.open(lake) as opened, pytest.raises(DatasetError, match=message):
        load_prompts(opened, folder)


def test_exemplars_of_another_lake_are_refused(lake: str, made_lake: Made, tmp_path: Path) -> None:
    row = {
        "prompt": "a", "task_id": made_lake.known.relu, "exemplar_kernel_ids": ["k"],
        "exemplar_scores": [1.0],
    }  # fmt: skip
    folder = folder_of(tmp_path, row)
    with store.open(lake) as opened, pytest.raises(DatasetError, match="about 1 kernels"):
        load_prompts(opened, folder)


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0}, {"temperature": float("inf")}, {"top_p": 0.0}, {"top_p": 2.0},
        {"max_tokens": 0},
    ],
)  # fmt: skip
def test_sampling_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    [(name, value)] = wrong.items()
    with pytest.raises(FlywheelError, match=f"--{name.replace('_', '-')} {value} is out of range"):
        Sampling(**wrong)


@pytest.mark.parametrize(
    "option",
    [
        "limit",
        "batch",
        "concurrency",
        "budget-tokens",
        "attempts",
        "wave",
        "rounds",
        "seeds",
        "keep",
    ],
)
def test_numbers_that_ask_for_nothing_are_refused(tmp_path: Path, option: str) -> None:
    number = "-1" if option == "keep" else "0"
    words = ["trainers", "rollout", "--dataset", "x", "--policy", "scripted:x"]
    done = commands.run([*words, f"--{option}", number], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--{option}" in done.stderr


def test_the_command_ends_with_an_error_where_an_endpoint_is_gone(
    lake: str, made_lake: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, {"prompt": "short", "task_id": made_lake.known.relu})
    with ChatServer(lambda asked: completion(["no"])) as server:
        url = f"{server.url}#m"
    common, serving = Common(lake=lake, quiet=True), Serving(retries=0, timeout_s=5.0)
    with pytest.raises(EndpointFailed, match="Run the same command again") as failed:
        rollout(dataset=str(folder), policy=[url], judge=False, serving=serving, common=common)
    assert failed.value.exit_code == 1
    assert "generations +0" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_ends_with_an_error_where_all_of_few_attempts_fail(
    lake: str, made_lake: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, {"prompt": "short", "task_id": made_lake.known.relu})
    common = Common(lake=lake, quiet=True)
    with (
        ChatServer(status(400, "too long")) as server,
        pytest.raises(FlywheelError, match="all 5 attempts failed"),
    ):
        rollout(dataset=str(folder), policy=[f"{server.url}#m"], judge=False, common=common)
    shown = capsys.readouterr()
    assert "generations +5 (5 failed)" in shown.out
    assert "too long" in shown.err
