"""`store.run`: rollouts of any framework become rows, and nothing that was logged is lost."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import builders
import commands
import numpy as np
import pytest
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

import store
from store.errors import FlywheelError, RolloutRejected, UsageError
from store.explore import report
from store.lake.location import Location
from store.rollouts import follow
from store.rollouts.rows import RolloutOrigin, make_rollout_rows
from store.upkeep import history, integrity, maintenance
from store.writing import spool

ORIGIN = RolloutOrigin(run_id="r", policy="p", vocabulary=50_000)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "assistant", "content": None, "reasoning_content": "adds", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "assistant", "content": "It is 2."},
]
LOGGER = """
import sys, store
url, rank, count = sys.argv[1:]
with store.run("r", lake=url, config={"seed": 1}, rank=int(rank)) as run:
    for number in range(int(count)):
        run.log_rollouts([{"id": f"{rank}-{number}-{i}", "completion_ids": [number] * 50,
                           "reward": 1.0, "step": number} for i in range(4)])
        if rank == "0":
            run.log({"loss": number / 2}, step=number)
        print(number, flush=True)
"""


class Unreadable:
    """A value like a tensor on the meta device."""

    def tolist(self) -> list[float]:
        raise NotImplementedError("no data")

    def __str__(self) -> str:
        raise NotImplementedError("no text")


def _ask(url: Path, query: str) -> list[dict[str, Any]]:
    with store.open(str(url)) as lake:
        return lake.sql(query).rows()


def _start(url: Path, rank: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOGGER, str(url), str(rank), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_rollout_is_rows_of_its_attempt_tokens_rewards_and_group(tmp_path: Path) -> None:
    task, label = builders.task(), "level1/9"
    with store.writer(str(tmp_path), author="tests") as writer:
        writer.append({"tasks": [task]}, "a task")
    tensor = np.array([-0.5, -0.25], np.float16)
    with store.run("r", lake=str(tmp_path), config={"lr": 1e-6}, license="MIT") as run:
        known, other = (
            {
                "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "2?"}],
                "completion": "two",
                "prompt_ids": [1, 2, 3],
                "completion_ids": (4, 5),
                "loss_mask": [1, 0],
                "sampler_logprobs": tensor,
                "old_logprobs": [-1, -2.5],
                "advantage": [0.5, -0.5],
                "reward": {"right": 1, "short": 0.25, "absent": None},
                "task": name,
                "group": 3,
                "sample": 1,
                "step": 7,
                "policy": "model-a",
                "policy_step": 6,
                "micro_batch": 2,
                "finish_reason": "stop",
                "sampling": {"temperature": 1.0},
                "tokenizer": "ab12",
            }
            for name in (task["task_id"], label)
        )
        run.log_rollouts([known, other])
    (first, second) = _ask(
        tmp_path,
        "SELECT g.* EXCLUDE (created_at), t.* EXCLUDE (generation_id, run_id, step, created_at) "
        "FROM generations AS g JOIN rollout_tokens AS t USING (generation_id) ORDER BY g.problem",
    )
    assert (first["problem"], first["task_id"]) == (label, None)
    assert (second["problem"], second["task_id"]) == (None, task["task_id"])
    stated = {
        name: first[name] for name in ("policy_id", "step", "sample_index", "turn", "license")
    }
    assert stated == {
        "policy_id": "model-a",
        "step": 7,
        "sample_index": 1,
        "turn": 0,
        "license": "MIT",
    }
    assert (first["completion"], first["completion_tokens"], first["kernel_id"]) == ("two", 2, None)
    assert (first["prompt_ids"], first["completion_ids"]) == ([1, 2, 3], [4, 5])
    assert (first["loss_mask"], first["sampler_logprobs"]) == ([True, False], [-0.5, -0.25])
    assert (first["old_logprobs"], first["token_advantages"]) == ([-1.0, -2.5], [0.5, -0.5])
    assert (first["ref_logprobs"], first["advantage"], first["micro_batch"]) == (None, None, 2)
    assert first["group_id"] == second["group_id"]
    rewards = _ask(tmp_path, "SELECT rule, raw, step FROM rewards GROUP BY ALL ORDER BY rule")
    assert rewards == [
        {"rule": "right", "raw": 1.0, "step": 7},
        {"rule": "short", "raw": 0.25, "step": 7},
    ]


@pytest.mark.slow
def test_messages_are_a_session_whose_attempts_are_its_turns(tmp_path: Path) -> None:
    own = [
        message | {"completion_ids": [at, at], "sampler_logprobs": [-1.0, -1.0]}
        if message["role"] == "assistant"
        else message
        for at, message in enumerate(TALK)
    ]
    with store.run("r", lake=str(tmp_path)) as run:
        whole = {"prompt": "1 + 1?", "completion": TALK, "completion_ids": [1, 2, 3], "id": "whole"}
        run.log_rollouts([whole, {"completion": own, "reward": 1.0, "id": "turns"}])
    steps = _ask(
        tmp_path,
        "SELECT name, session_steps.step, role, reasoning, generation_id, turn, "
        "trajectory_id = session_id AS is_same, completion_ids FROM session_steps "
        "JOIN sessions USING (session_id) LEFT JOIN generations USING (generation_id) "
        "LEFT JOIN rollout_tokens USING (generation_id) "
        "ORDER BY name, session_steps.step",
    )
    seen = [(row["name"], row["role"], row["turn"], row["completion_ids"]) for row in steps]
    assert seen == [
        ("turns", "assistant", 0, [0, 0]),
        ("turns", "assistant", 1, [2, 2]),
        ("whole", "user", None, None),
        ("whole", "assistant", 0, [1, 2, 3]),
        ("whole", "assistant", 0, [1, 2, 3]),
    ]
    assert all(row["is_same"] in (True, None) for row in steps)
    (rewarded,) = _ask(tmp_path, "SELECT turn FROM rewards JOIN generations USING (generation_id)")
    assert rewarded == {"turn": 1}
    calls = _ask(tmp_path, "SELECT tool, arguments, result FROM tool_calls")
    assert calls == [{"tool": "add", "arguments": '{"a": 1}', "result": "2"}] * 2


def test_roles_have_the_names_of_other_programs() -> None:
    sharegpt = {
        "prompt": [{"from": "system", "value": "s"}, {"from": "human", "value": "2?"}],
        "completion": [{"from": "gpt", "value": "two"}],
    }
    langchain = {
        "prompt": [{"role": "developer", "content": "s"}, {"role": "human", "content": "2?"}],
        "completion": {"role": "ai", "content": "two"},
    }
    gemini = {"completion": [{"role": "model", "content": "two"}]}
    tables = make_rollout_rows(ORIGIN, [sharegpt, langchain, gemini])
    [prompt] = [row for row in tables["prompts"] if row["messages"] != "[]"]
    shown = [{"role": "system", "content": "s"}, {"role": "user", "content": "2?"}]
    assert json.loads(prompt["messages"]) == shown
    assert [row["completion"] for row in tables["generations"]] == ["two"] * 3


_LOGPROB = st.floats(-100, 0, width=32)


def test_every_token_comes_back_bit_by_bit(tmp_path: Path) -> None:
    numbers = itertools.count()

    @settings(deadline=None, max_examples=count_examples(60))
    @given(st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans(), _LOGPROB))))
    def compare(answers: list[list[tuple[int, bool, float]]]) -> None:
        step = next(numbers)
        rollouts = [
            {
                "id": f"{step} {at}",
                "step": step,
                "completion_ids": [token for token, _, _ in answer],
                "loss_mask": [mask for _, mask, _ in answer],
                "sampler_logprobs": [logprob for _, _, logprob in answer],
            }
            for at, answer in enumerate(answers)
        ]
        run.log_rollouts(rollouts)
        run.log_rollouts(rollouts)
        run.flush()
        names = ("completion_ids", "loss_mask", "sampler_logprobs")
        rows = _ask(tmp_path, f"SELECT {', '.join(names)} FROM rollout_tokens WHERE step = {step}")
        expected = [{name: one[name] for name in names} for one in rollouts]
        assert sorted(map(repr, rows)) == sorted(map(repr, expected))

    with store.run("r", lake=str(tmp_path)) as run:
        compare()


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        (
            {"completion_ids": [1, 2], "loss_mask": [1]},
            "loss_mask has 1 values, and completion_ids",
        ),
        ({"completion_ids": [1], "advantage": [1.0, 2.0]}, "advantage has 2 values"),
        ({"sampler_logprobs": [-1.0, float("nan")]}, r"sampler_logprobs\[1\] is nan, not a finite"),
        ({"ref_logprobs": [-float("inf")]}, r"ref_logprobs\[0\] is -inf, not a finite"),
        ({"old_logprobs": [-1.0, 0.5]}, r"old_logprobs\[1\] is 0.5, not a log-probability"),
        ({"completion_ids": [1, 50_000]}, r"completion_ids\[1\] is 50000, beyond the vocabulary"),
        ({"prompt_ids": [2**31]}, r"prompt_ids\[0\] is 2147483648, beyond what"),
        ({"prompt_ids": [-1]}, r"prompt_ids\[0\] is -1, beyond what"),
        ({"prompt_ids": [2**70]}, r"prompt_ids"),
        ({"completion_ids": [1.5]}, "completion_ids has values like 1.5, not token ids"),
        ({"completion_ids": [[1], [2]]}, "completion_ids has 2 dimensions, not one"),
        ({"completion_ids": [[1], [2, 3]]}, "completion_ids is not a list of numbers"),
        ({"completion_ids": "abc"}, "completion_ids has 0 dimensions, not one"),
        ({"completion_ids": ["a"]}, "completion_ids has values like 'a', not token ids"),
        ({"loss_mask": [0, 2]}, r"loss_mask\[1\] is 2, not 0 or 1"),
        ({"token_ends": [3, 2]}, r"token_ends\[1\] is 2, before the end of an earlier token"),
        (
            {"completion": "four", "token_ends": [3, 5]},
            r"token_ends\[1\] is 5, beyond the text of 4 characters",
        ),
        ({"reward": float("nan")}, "reward is nan, not a finite number"),
        ({"reward": {"right": "yes"}}, r"reward\['right'\] is 'yes', not a finite number"),
        ({"advantage": "much"}, "advantage has 0 dimensions"),
        ({"advantage": 1e39}, r"advantage is 1e\+39, not a finite number of 32 bits"),
        ({"reward": 10**400}, "reward is 10{50,}"),
        (
            {"completion": [{"role": "assistant", "completion_ids": [1]}], "prompt_ids": [2]},
            "prompt_ids is given for the rollout and by messages",
        ),
        ({"step": -1}, "step is -1, not a whole number from 0"),
        ({"step": True}, "step is True, not a whole number from 0"),
        ({"step": float("nan")}, "step is nan, not a whole number from 0"),
        ({"prompt_ids": 5}, "prompt_ids has 0 dimensions, not one"),
        ({"old_logprobs": Unreadable()}, "old_logprobs cannot be read: no data"),
        ({"completion": [{"role": "user", "content": Unreadable()}]}, "cannot be read: no text"),
        ({"reward": {"1": 1, 1: 2}}, r"reward\[1\] is the second term '1'"),
        ({"prompt": 3}, "prompt is int, no text and no list of messages"),
        ({"completion": [{"role": "robot", "content": "x"}]}, r"completion\[0\] role is 'robot'"),
        ({"completion": [{"role": ["user"], "content": "x"}]}, r"completion\[0\] role is \['user"),
        ({"completion": [{"from": "robot", "value": "x"}]}, r"completion\[0\] role is 'robot'"),
        ({"completion": ["x"]}, r"completion\[0\] is no dict"),
        (
            {"completion": [{"role": "assistant", "tool_calls": ["x"]}]},
            "completion a tool call is str",
        ),
        ({"policy": 1.5}, "policy is float, not a text"),
        ({"sampling": {1, 2}, "sample": "x"}, "sample is 'x', not a whole number"),
        ({"completions": "x"}, 'no key of a rollout "completions"\nDid you mean "completion"'),
        ("text", "it is str, not a dict"),
        ({}, "it is empty"),
    ],
)
def test_an_error_names_the_rollout_and_the_key(rollout: Any, said: str) -> None:
    with pytest.raises(RolloutRejected, match=f"^rollout 1: {said}"):
        make_rollout_rows(ORIGIN, [{"completion": "good"}, rollout])


@pytest.mark.slow
def test_nothing_of_a_call_is_stored_if_a_rollout_breaks_a_rule_unless_told_to_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"completion": "bad", "sampler_logprobs": np.array([np.nan])}
    unreadable = {"completion": Unreadable(), "reward": 1, "id": Unreadable()}
    with store.run("r", lake=str(tmp_path)) as run, pytest.raises(RolloutRejected):
        run.log_rollouts([{"completion": "good"}, bad])
    assert not _ask(tmp_path, "FROM generations")
    with (
        caplog.at_level(logging.WARNING),
        store.run("r", lake=str(tmp_path), on_error="warn") as run,
    ):
        run.log_rollouts(one for one in ({"completion": "good"}, bad, unreadable))
        for metrics in ({"a": "text"}, {"a": Unreadable()}, {"a": 10**400}, {"a": None}, [], None):
            run.log(metrics)  # pyright: ignore[reportArgumentType]
        run.log({"a": 1}, step=2**70)
        run.log({"a": 1}, step=3)
    kept, other = map(json.loads, run.left_out_file.read_text().splitlines())
    assert other["rollout"] == {"'completion'": "<Unreadable>", "'id'": "<Unreadable>", "reward": 1}
    assert "completion cannot be read: no data" in other["why"]
    assert _ask(tmp_path, "SELECT step, value FROM metrics") == [{"step": 3, "value": 1.0}]
    assert kept["why"] == "rollout 1: sampler_logprobs[0] is nan, not a finite number"
    assert kept["rollout"]["completion"] == "bad"
    assert f"2 rollouts broke a rule and are kept in {run.left_out_file}" in caplog.text
    assert [row["completion"] for row in _ask(tmp_path, "FROM generations")] == ["good"]


def test_an_id_is_stored_once_and_one_that_was_refused_may_come_again(tmp_path: Path) -> None:
    with store.run("r", lake=str(tmp_path), on_error="warn") as run:
        run.log_rollouts([{"id": 1, "reward": math.nan}, {"id": 2, "completion": "a"}])
        run.log_rollouts([{"id": 1, "reward": 0.5}, {"id": 2, "completion": "b", "reward": 1.0}])
        run.log_rollouts([{"id": 3, "completion": "c"}, {"id": 3, "reward": 2.0}])
    assert _ask(tmp_path, "SELECT raw FROM rewards") == [{"raw": 0.5}]
    completions = _ask(tmp_path, "SELECT completion FROM generations ORDER BY ALL")
    assert [row["completion"] for row in completions] == ["a", "c", None]


def test_a_name_resumes_its_run_and_its_config_must_be_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (
        cast("Any", {name: given[name] for name in names})
        for given in ({"lr": 0.1, "model": Path("m"), 5: math.nan},)
        for names in (("lr", "model", 5), (5, "model", "lr"))
    )
    with store.run("r", lake=str(tmp_path), config=first) as run:
        run.log({"loss": 1.0, "eval": {"right": 0.5}}, step=3)
        run.log({"loss": 0.5, "text": "x", "worst": float("inf")})
        with pytest.raises(FlywheelError, match=r"another process logs to the run .* as rank 0"):
            store.run("r", lake=str(tmp_path), config={"lr": 0.1})
    wrong: list[dict[str, Any]] = [
        {"config": {"x": [], ("a", "b"): 1}}, {"config": ["x"]}, {"rank": -1},
        {"on_error": "ignore"}, {"vocabulary": 0}, {"name": ""}, {"name": "a\0"}, {"name": None},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(UsageError):
            store.run(**(dict[str, Any](name="r", lake=str(tmp_path)) | options))
    with pytest.raises(
        FlywheelError, match=r"another config: 5 is .* lr is 0\.2 and was 0\.1, model"
    ):
        store.run("r", lake=str(tmp_path), config={"lr": 0.2})
    with store.run("r", lake=str(tmp_path), config=second) as run:
        run.log({"loss": 9.0, "text": "x"}, step=4)
        run.log({"eval.right": 1.0, "loss": 9.0}, step=3)
        run.log({"loss": 0.25})
    assert "loss of step 4 is stored; its first value stays" in caplog.text
    assert "If this is another training, give it another name" in caplog.text
    assert caplog.text.count("its first value stays") == 1
    metrics = _ask(tmp_path, "SELECT name, step, value FROM metrics ORDER BY name, step")
    assert [tuple(row.values()) for row in metrics] == [
        ("eval.right", 3, 0.5), ("loss", 3, 1.0), ("loss", 4, 0.5), ("loss", 5, 0.25)
    ]  # fmt: skip
    ends = _ask(tmp_path, "SELECT outcome FROM run_ends ORDER BY number")
    assert [row["outcome"] for row in ends] == ["finished", "resumed", "finished"]
    with pytest.raises(FlywheelError, match="is closed"):
        run.log({"loss": 1.0})


@pytest.mark.slow
def test_a_full_disk_loses_nothing_and_the_training_goes_on_if_told_to(tmp_path: Path) -> None:
    program = """
import resource, store, sys
with store.run("r", lake=sys.argv[1], on_error=sys.argv[2]) as run:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        bad = [{"completion": "y" * 2000, "step": -1}] * (sys.argv[2] == "warn")
        run.log_rollouts([{"completion": "x" * 2000}, *bad])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    run.log({"loss": 1.0})
"""
    outcomes = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path), on_error],
            capture_output=True,
            text=True,
            check=False,
        )
        for on_error in ("raise", "warn")
    ]
    assert [one.returncode for one in outcomes] == [1, 0]
    assert "Nothing is stored" in outcomes[0].stderr
    assert "1 appends wait in memory" in outcomes[1].stderr
    (left_out,) = (tmp_path / "spool" / "left-out").iterdir()
    assert json.loads(left_out.read_text())["rollout"]["completion"] == "y" * 2000
    assert len(_ask(tmp_path, "FROM generations")) == 1
    assert [row["outcome"] for row in _ask(tmp_path, "FROM run_ends ORDER BY number")][
        -1
    ] == "finished"


@pytest.mark.slow
def test_several_ranks_log_at_once_and_a_kill_loses_nothing_that_was_logged(tmp_path: Path) -> None:
    ranks = [_start(tmp_path, rank, 1_000_000 if rank == 1 else 10) for rank in range(3)]
    printed = ranks[1].stdout
    assert printed is not None
    logged = 0
    while logged < 10:
        logged = int(printed.readline())
    os.kill(ranks[1].pid, signal.SIGKILL)
    rest = printed.read().split()
    logged = int(rest[-1]) if rest else logged
    for rank in (0, 2):
        _, errors = ranks[rank].communicate(timeout=300)
        assert ranks[rank].returncode == 0, errors
    ranks[1].communicate()
    with store.run("r", lake=str(tmp_path), config={"seed": 1}, rank=1) as run:
        # Repeat what the killed process may have logged.
        run.log_rollouts(
            [
                {"id": f"1-0-{i}", "completion_ids": [0] * 50, "reward": 1.0, "step": 0}
                for i in range(4)
            ]
        )
    counts = _ask(
        tmp_path,
        'SELECT "rank", count(DISTINCT step) AS steps, max(step) AS last, count(*) AS rows, '
        "count(DISTINCT generation_id) AS ids FROM rollout_tokens GROUP BY ALL ORDER BY ALL",
    )
    assert [row["rows"] == row["ids"] == 4 * row["steps"] for row in counts] == [True] * 3
    assert counts[0]["steps"] == counts[2]["steps"] == 10
    assert counts[1]["steps"] == counts[1]["last"] + 1 >= logged + 1
    assert not spool.list_files(tmp_path / "spool")
    assert not spool.locate_folder(tmp_path / "spool").exists()
    assert len(_ask(tmp_path, "FROM metrics")) == 10


def test_a_report_of_a_run_without_attempts_is_made(tmp_path: Path) -> None:
    with store.run("r", lake=str(tmp_path)):
        pass
    with store.open(str(tmp_path)) as lake:
        [training] = [one for one in report.list_sections(lake) if one.title == "Newest training"]
        assert not report.answer_section(lake, training).rows


def test_only_a_trainer_that_samples_can_be_attached() -> None:
    with pytest.raises(UsageError, match="takes a GRPOTrainer of TRL, not object"):
        store.attach(object())


def test_importing_the_store_loads_neither_torch_nor_duckdb() -> None:
    program = (
        "import store, sys; print([m for m in ('torch', 'duckdb', 'pyarrow') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_tokens_of_a_run_are_deleted_unless_a_tag_needs_them(tmp_path: Path) -> None:
    folder, copy = tmp_path / "lake", tmp_path / "copy"
    location = Location.of(str(folder))
    rollouts = [{"completion_ids": [1, 2], "reward": 1.0, "id": at} for at in range(3)]
    runs: dict[str, str] = {}
    for name in ("a", "b"):
        with store.run(name, lake=str(folder)) as run:
            run.log_rollouts(rollouts)
        runs[name] = run.run_id
    maintenance.compact(location)  # puts the rows of both runs into one file
    with store.writer(str(folder), author="tests") as writer:
        before = writer.find_newest()
        history.add_tag(writer, "keep", before, None)
        with pytest.raises(FlywheelError, match=r"needed by the tag keep"):
            maintenance.expire_tokens(location, runs["a"])
        history.remove_tag(writer, "keep", None)
    count = "SELECT count(*) AS n FROM rollout_tokens WHERE run_id = $run_id"
    assert maintenance.expire_tokens(location, runs["a"], dry_run=True) == 3
    answer = commands.run(["store", "expire", "--tokens", "a", "--lake", str(folder)], cwd=folder)
    assert "deleted the tokens of 3 attempts" in answer.stdout, answer.stderr
    assert maintenance.expire_tokens(location, runs["a"]) == 0
    for at, expected in ((before, [3, 3]), (None, [0, 3])):
        with store.open(str(folder), at) as lake:
            found = [lake.run(count, {"run_id": run_id}).one() for run_id in runs.values()]
        assert found == [{"n": number} for number in expected]
    maintenance.backup(location, copy)
    # The keys that were deleted are new again.
    with store.writer(str(folder), author="tests") as writer, writer.reader(before) as lake:
        rows = lake.run("FROM rollout_tokens WHERE run_id = $run_id", {"run_id": runs["a"]})
        writer.append({"rollout_tokens": rows.arrow()}, "again")
    maintenance.compact(location)
    assert len(_ask(folder, "FROM rollout_tokens")) == 6
    assert len(_ask(copy, "FROM rollout_tokens")) == 3
    assert not integrity.check(location)


@pytest.mark.folder
@pytest.mark.slow
def test_a_backup_without_tokens_has_all_other_rows(tmp_path: Path) -> None:
    lake, copy, again = (tmp_path / name for name in ("lake", "copy", "again"))
    with store.run("a", lake=str(lake)) as run:
        run.log_rollouts([{"completion": "x", "completion_ids": [1], "step": 0}] * 3)
    command = ["store", "backup", str(copy), "--without-tokens", "--lake", str(lake)]
    assert "tokens of 3 attempts are left out" in commands.run(command, cwd=tmp_path).stderr
    assert not list(copy.rglob("rollout_tokens/*"))
    count = (
        "SELECT (SELECT count(*) FROM generations) AS attempts, "
        "(SELECT count(*) FROM rollout_tokens) AS tokens"
    )
    with store.open(str(lake)) as own, store.open(str(copy)) as other:
        assert other.snapshot == own.snapshot
        for opened, tokens in ((own, 3), (other, 0)):
            assert opened.sql(count).one() == {"attempts": 3, "tokens": tokens}
    # The copy goes on, and so does a lake that is restored from it.
    command = ["store", "restore", str(copy), "--lake", str(again)]
    assert "tokens of 3 attempts are left out" in commands.run(command, cwd=tmp_path).stderr
    with store.run("a", lake=str(again)) as run:
        run.log_rollouts([{"completion": "y", "completion_ids": [2], "step": 1}])
    assert _ask(again, "SELECT step FROM rollout_tokens") == [{"step": 1}]
    for folder in (copy, again):
        assert not integrity.check(Location.of(str(folder)))
    maintenance.backup(Location.of(str(lake)), copy)  # a later one has what was left out
    assert len(_ask(copy, "FROM rollout_tokens")) == 3


def _write_verl(folder: Path, step: int) -> None:
    """Write a file as verl's trainer dumps the rollouts of a step."""
    folder.mkdir(exist_ok=True)
    lines = [
        {"input": f"{at // 2} + 1?", "output": f"{at}", "gts": "1", "score": at / 4, "step": step}
        | {"acc": at == 2, "pred": "x"}
        for at in range(4)
    ]
    (folder / f"{step}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_the_dumps_of_verl_are_followed_while_it_trains(tmp_path: Path) -> None:
    lake, dumps = tmp_path / "lake", tmp_path / "dumps"
    program = "import store, sys; store.run('grpo', lake=sys.argv[1]).follow(sys.argv[2])"
    command = [sys.executable, "-c", program, str(lake), str(dumps)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        _write_verl(dumps, 1)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            time.sleep(1)
            if (lake / "catalog.sqlite").exists() and _ask(lake, "FROM rewards"):
                break
        _write_verl(dumps, 2)
        with open(dumps / "2.jsonl", "a", encoding="utf-8") as file:
            file.write('{"input": "cut of')
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "1 rollouts broke a rule" in errors
    assert "2.jsonl, byte" in errors
    with store.run("grpo", lake=str(lake)) as run:
        run.follow(dumps, live=False)
    rows = _ask(
        lake,
        "SELECT generations.step, sample_index, count(DISTINCT group_id) AS groups, "
        "list(raw ORDER BY raw) FILTER (rule = 'score') AS scores, count(*) AS rewards "
        "FROM generations JOIN rewards USING (generation_id) GROUP BY ALL ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in rows] == [
        (step, sample, 2, [0.0 + sample / 4, 0.5 + sample / 4], 4)
        for step in (1, 2)
        for sample in (0, 1)
    ]


@pytest.mark.slow
def test_logs_of_requests_and_left_out_rollouts_are_read(tmp_path: Path) -> None:
    lake, log_file = tmp_path / "lake", tmp_path / "requests.jsonl"
    tokens = [{"token": "4", "logprob": -0.5}, {"token": "!", "logprob": 0.0}]
    answers = [
        {"index": 0, "message": {"role": "assistant", "content": "4!"}, "finish_reason": "stop"}
        | {"logprobs": {"content": tokens}},
        {"index": 1, "message": TALK[0], "finish_reason": "tool_calls", "logprobs": None},
    ]
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "2 + 2?"}],
        "temperature": 0.5,
    }
    arguments = ({"name": "add", "arguments": ""}, {"arguments": "[1,"}, {"arguments": "2]"})
    stream = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (
            ({"role": "assistant", "content": "str"}, None),
            ({"content": "eamed"}, None),
            *(({"tool_calls": [{"index": 0, "function": one}]}, None) for one in arguments),
            ({}, "tool_calls"),
        )
    ]
    lines = [
        {"request": request, "response": {"id": "c1", "model": "m-1", "choices": answers}},
        request | {"choices": answers[:1]},
        {"why": "rollout 3: …", "rollout": {"completion": "again"}},
        {"completion": "own"},
        {"request": json.dumps({"body": request}), "response": stream},
        {"other": 1},
        stream[0],
        {"response": {"error": "rate limit"}},
        {"traces": [{"id": "t"}]},
    ]
    log_file.write_text("\n".join(map(json.dumps, lines)))
    with store.run("requests", lake=str(lake)) as run:
        run.follow(log_file, live=False)
    said = [json.loads(one)["why"] for one in run.left_out_file.read_text().splitlines()]
    assert [one.partition(": ")[2][:22] for one in said] == [
        "no rollout of verl, ve", "not the format that it", "a request without choi",
        "no trace has messages",
    ]  # fmt: skip
    rows = _ask(
        lake,
        "SELECT policy_id, completion, finish_reason, sampling, sampler_logprobs FROM generations "
        "LEFT JOIN rollout_tokens USING (generation_id) ORDER BY ALL",
    )
    assert [tuple(row.values()) for row in rows] == [
        ("m", "4!", "stop", '{"temperature": 0.5}', [-0.5, 0.0]),
        ("m", "streamed", "tool_calls", '{"temperature": 0.5}', None),
        ("m-1", "4!", "stop", '{"temperature": 0.5}', [-0.5, 0.0]),
        ("m-1", None, "tool_calls", '{"temperature": 0.5}', None),
        ("requests", "again", None, None, None),
        ("requests", "own", None, None, None),
    ]
    calls = _ask(lake, "SELECT tool, arguments FROM tool_calls ORDER BY ALL")
    assert [tuple(row.values()) for row in calls] == [("add", "[1,2]"), ("add", '{"a": 1}')]


def test_files_that_rotate_and_lines_without_end_lose_no_other_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LONGEST_LINE", 100)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text('{"completion": "same"}\n')
    file = tmp_path / "log.jsonl"
    (tmp_path / "old.jsonl.gz").write_bytes(b"")
    followed = follow.Followed(tmp_path)
    assert followed.count_others() == {".gz": 1}
    seen = [one for lines in followed.read() for one in lines if isinstance(one, dict)]
    assert len({one["id"] for one in seen}) == 2
    file.write_text('{"completion": "a"}\n{"comp')
    assert [one["completion"] for (one,) in followed.read() if isinstance(one, dict)] == ["a"]
    with open(file, "a") as handle:
        handle.write(f'letion": "b"}}\n{"[" * 1000}\n{{"completion": "c"}}\n')
    file.rename(tmp_path / "log.jsonl.1")
    file.write_text('{"completion": "d"}\n')
    said = [one for lines in followed.read() for one in lines]
    found = [one["completion"] if isinstance(one, dict) else str(one)[-18:] for one in said]
    assert found == ["b", "0: a line of 0 MiB", "c", "d"]
    assert not [*followed.read()]


def test_a_link_out_of_a_followed_folder_is_left_out(tmp_path: Path) -> None:
    """A folder of other people could name any file of this host."""
    folder, secret = tmp_path / "logs", tmp_path / "secret.jsonl"
    folder.mkdir()
    secret.write_text('{"completion": "secret"}\n')
    (folder / "a.jsonl").symlink_to(secret)
    (folder / "b").symlink_to(tmp_path)
    (folder / "c.jsonl").write_text('{"completion": "ours"}\n')
    (folder / "d.jsonl").symlink_to(folder / "c.jsonl")
    with store.run("r", lake=str(tmp_path / "lake")) as run:
        run.follow(folder, live=False)
        run.follow(secret, live=False)  # the user names this file
    [why] = [json.loads(line)["why"] for line in run.left_out_file.read_text().splitlines()]
    assert "a.jsonl is a link to" in why
    rows = _ask(tmp_path / "lake", "SELECT completion FROM generations ORDER BY ALL")
    assert [row["completion"] for row in rows] == ["ours", "ours", "secret"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            b'{"input": "p", "output": "o", "score": NaN, "step": 1, "acc": Infinity}',
            {"score": None},
        ),
        (b'\xef\xbb\xbf{"input": "p", "output": "o", "score": 1, "step": 1}\r', {"score": 1}),
        (b"{}", "it has no names"),
        (b'{"completion": "a", "completion": "b"}', "an object has the name 'completion' twice"),
        (b'{"prompt": ' * 5_000, "is nested too deeply"),
        ('{"completion": "a"}'.encode("utf-16"), "not UTF-8 at byte 0"),
        (b"null", "an object is expected, not NoneType"),
    ],
)
def test_a_line_of_odd_json_is_read_or_named(tmp_path: Path, line: bytes, said: Any) -> None:
    (tmp_path / "log.jsonl").write_bytes(line)
    [[found]] = follow.Followed(tmp_path).read(to_the_end=True)
    if isinstance(found, dict):
        assert found["reward"] == said
    else:
        assert "log.jsonl, byte 0" in str(found)
        assert said in str(found)


VERIFIERS = """
from verifiers.v1 import AgentConfig
from verifiers.v1.episode import Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.task import WireTaskData
from verifiers.v1.trace import AgentInfo, ModelCall, Reward, Trace, TraceTask
from verifiers.v1.types import AssistantMessage, UserMessage

task = TraceTask(type="T", data=WireTaskData(idx=0, name="sum"), key="k")
ask = MessageNode(message=UserMessage(content="1 + 1?"), token_ids=[1, 2], mask=[False] * 2)
say = MessageNode(
    parent=0, message=AssistantMessage(content="2"), sampled=True,
    token_ids=[3, 4, 5], mask=[False, True, True], logprobs=[-0.5, -0.25],
)
trace = Trace(
    id="t1", task=task, agent=AgentInfo(config=AgentConfig()), nodes=[ask, say],
    calls=[ModelCall(node=1, model="m")], rewards={"right": Reward(score=1.0, weight=0.5)},
    metrics={"turns": 1.0}, stop_condition="done",
)
print(Episode(task=task, traces=[trace]).model_dump_json())
"""


@pytest.mark.skipif(
    "VERIFIERS_PYTHON" not in os.environ, reason="names a Python with verifiers 0.4"
)
def test_traces_of_the_installed_verifiers_are_read(tmp_path: Path) -> None:
    command = [os.environ["VERIFIERS_PYTHON"], "-c", VERIFIERS]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (tmp_path / "traces.jsonl").write_text(line)
    with store.run("r", lake=str(tmp_path / "lake")) as run:
        run.follow(tmp_path / "traces.jsonl", live=False)
    _check_trace(tmp_path / "lake")


@pytest.mark.slow
def test_traces_of_verifiers_are_read(tmp_path: Path) -> None:
    ask = {
        "message": {"role": "user", "content": "1 + 1?"},
        "token_ids": [1, 2],
        "mask": [False] * 2,
    }
    say = {"parent": 0, "message": {"role": "assistant", "content": "2"}, "sampled": True}
    say |= {"token_ids": [3, 4, 5], "mask": [False, True, True], "logprobs": [-0.5, -0.25]}
    trace = {"id": "t1", "task": {"data": {"name": "sum"}}, "nodes": [ask, say]}
    trace |= {"calls": [{"model": "m"}], "rewards": {"right": {"score": 1.0, "weight": 0.5}}}
    trace |= {"metrics": {"turns": 1.0}, "stop_condition": "done"}
    (tmp_path / "traces.jsonl").write_text(json.dumps({"env": {}, "traces": [trace]}))
    with store.run("r", lake=str(tmp_path / "lake")) as run:
        run.follow(tmp_path / "traces.jsonl", live=False)
    _check_trace(tmp_path / "lake")


def _check_trace(lake: Path) -> None:
    (row,) = _ask(
        lake,
        "SELECT policy_id, problem, completion, finish_reason, prompt_ids, completion_ids, "
        "loss_mask, sampler_logprobs FROM generations JOIN rollout_tokens USING (generation_id)",
    )
    assert list(row.values()) == [
        *("m", "sum", "2", "done", [1, 2], [3, 4, 5], [False, True, True], [0.0, -0.5, -0.25])
    ]
    rewards = _ask(lake, "SELECT rule, raw FROM rewards ORDER BY rule")
    assert [tuple(one.values()) for one in rewards] == [("metric/turns", 1.0), ("right", 0.5)]


METRICS: list[dict[str, Any]] = [
    {"loss": 0.5, "train": {"reward": 1.0, "kl": {"mean": 0.125}}, "n": 3, "ok": True},
    {"loss": 0.25, "grad/norm": math.inf},
    {"loss": 0.125, "text": "x"},
]
TRACKERS = """
import glob, json, os, sqlite3, sys
os.environ |= {"TRACKIO_DIR": "trackio", "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
import trackio, wandb
metrics = json.loads(sys.argv[1])
with wandb.init(project="p") as run:
    for one in metrics:
        run.log(one)
    step, summary = run.step, dict(run.summary)
trackio.init(project="p", name="r")
for one in metrics:
    trackio.log(one)
trackio.finish()
stored = sqlite3.connect(glob.glob("trackio/p*.db")[0])
rows = stored.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
own = {name: value for name, value in summary.items() if not name.startswith("_")}
print(json.dumps([[[at, json.loads(one)] for at, one in rows], step, own], default=dict))
"""


@pytest.mark.skipif(
    "TRACKERS_PYTHON" not in os.environ, reason="names a Python with wandb and trackio"
)
def test_metrics_have_the_steps_and_names_of_trackio_and_wandb(tmp_path: Path) -> None:
    command = [os.environ["TRACKERS_PYTHON"], "-c", TRACKERS, json.dumps(METRICS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    of_trackio, next_step, summary = json.loads(done.stdout.splitlines()[-1])
    with store.run("r", lake=str(tmp_path / "lake")) as run:
        for one in METRICS:
            run.log(one)

    def flatten(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
        for name, value in values.items():
            if isinstance(value, dict):
                yield from flatten(value, f"{before}{name}.")
            elif not isinstance(value, str) and math.isfinite(value):
                yield f"{before}{name}", float(value)

    ours = _ask(tmp_path / "lake", "SELECT step, name, value FROM metrics ORDER BY step, name")
    logged = [(at, *pair) for at, values in of_trackio for pair in flatten(values)]
    assert [tuple(one.values()) for one in ours] == sorted(logged)
    assert {one["name"]: one["value"] for one in ours} == dict(flatten(summary))
    assert next_step == ours[-1]["step"] + 1
