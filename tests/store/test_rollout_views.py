"""Views over rollouts and their tokens: numbers worked out by hand, and what the views read."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store

TASK, RUN, OTHER = b.task(), b.run("ours", "training"), b.run("other", "training")
POLICY = b.policy("learner")
PROMPTS = [
    {
        "prompt_id": store.ids.compute_row_id("text", None, [messages]), "messages": messages,
        "created_at": b.START,
    }
    for messages in ('[{"role": "user", "content": "1 + 1"}]', '[{"role": "user", "content": "2"}]')
]  # fmt: skip


def attempt(minute: float, step: int, group: str, text: str, **more: Any) -> b.Row:
    """Return an attempt of the run at a prompt without a task."""
    columns = {"run_id": RUN["run_id"], "step": step, "group_id": group, "task_id": None} | more
    return b.generation(POLICY, TASK, minute=minute, completion=text, **columns)


FIRST = [
    attempt(0, 0, "g0", "two", prompt_id=PROMPTS[0]["prompt_id"], completion_tokens=2),
    attempt(1, 0, "g0", "two", prompt_id=PROMPTS[0]["prompt_id"], completion_tokens=4,
            finish_reason="length"),
    attempt(2, 0, "g1", "", prompt_id=PROMPTS[1]["prompt_id"], completion_tokens=0,
            finish_reason="stop"),
]  # fmt: skip
SECOND = [
    attempt(3, 1, "g2", "two", prompt_id=PROMPTS[0]["prompt_id"], completion_tokens=1),
    attempt(4, 1, "g2", "2", prompt_id=PROMPTS[0]["prompt_id"], completion_tokens=1),
]
FOREIGN = attempt(5, 0, "g9", "two", run_id=OTHER["run_id"], completion_tokens=7)
TOKENS = [
    b.rollout_tokens(FIRST[0], [5, 6], sampler_logprobs=[-1.0, -3.0], old_logprobs=[-1.5, -3.0]),
    # The two tokens in the middle are of a tool.
    b.rollout_tokens(
        FIRST[1], [7, 8, 9, 10], loss_mask=[True, False, False, True],
        sampler_logprobs=[-2.0, 0.0, 0.0, -2.0], old_logprobs=[-2.0, -9.0, -9.0, -2.25],
    ),
    b.rollout_tokens(FIRST[2], [], sampler_logprobs=[], old_logprobs=[]),
    b.rollout_tokens(SECOND[0], [5], sampler_logprobs=[-0.5]),
    b.rollout_tokens(SECOND[1], [11]),
    b.rollout_tokens(FOREIGN, [5], sampler_logprobs=[-8.0], old_logprobs=[-1.0]),
]  # fmt: skip
REWARDS = [
    *(b.reward(one, raw, "right") for one, raw in zip(FIRST, (0.0, 1.0, 0.0), strict=True)),
    *(b.reward(one, 0.5, "short") for one in FIRST),
    *(b.reward(one, 1.0, "right") for one in SECOND),
    b.reward(FOREIGN, 3.0, "right"),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a run of two steps: three answers, two of them equal; then two correct answers."""
    url = str(tmp_path_factory.mktemp("rollouts") / "lake")
    with store.writer(url, author="tests") as writer:
        rows = {
            "tasks": [TASK], "policies": [POLICY], "runs": [RUN, OTHER], "prompts": PROMPTS,
            "generations": [*FIRST, *SECOND, FOREIGN], "rollout_tokens": TOKENS, "rewards": REWARDS,
        }  # fmt: skip
        writer.append(rows, "rollouts")
    with store.open(url) as opened:
        yield opened


def ask(lake: store.Lake, view: str, columns: str) -> list[tuple[Any, ...]]:
    """Return columns of the rows of the run."""
    query = f"SELECT {columns} FROM {view} WHERE run_id = '{RUN['run_id']}'"
    return [tuple(row.values()) for row in lake.sql(query).rows()]


def test_length_surprisal_and_gap_by_step(lake: store.Lake) -> None:
    columns = "step, attempts, tokens_mean, tokens_max, cut_share, surprisal, gap_mean, gap_rms"
    first, second = ask(lake, "rollout_steps", columns)
    # Tokens of the loss: -1, -3 and -2, -2; gaps -0.5, 0 and 0, -0.25.
    assert first == (0, 3, 2, 4, 0.5, 2, -0.75 / 4, pytest.approx(math.sqrt(0.3125 / 4)))
    assert second == (1, 2, 1, 1, None, 0.5, None, None)


def test_the_gap_of_each_token_of_the_loss(lake: store.Lake) -> None:
    columns = "generation_id, position, token_id, sampler_logprob, trainer_logprob, gap"
    one, two = (FIRST[at]["generation_id"] for at in (0, 1))
    assert sorted(ask(lake, "token_gaps", columns)) == sorted(
        [
            (one, 0, 5, -1, -1.5, -0.5), (one, 1, 6, -3, -3, 0),
            (two, 0, 7, -2, -2, 0), (two, 3, 10, -2, -2.25, -0.25),
        ]
    )  # fmt: skip


def test_rollouts_whose_ratio_is_clipped(lake: store.Lake) -> None:
    columns = (
        "generation_id, clipped_tokens, tokens, ratio_min, ratio_max, sequence_ratio, gap_max, "
        "position, token_id"
    )
    found = sorted(ask(lake, "clipped_rollouts", columns), key=lambda row: row[3])
    assert found == [
        (FIRST[at]["generation_id"], 1, 2, pytest.approx(math.exp(-gap)), 1,
         pytest.approx(math.exp(-gap)), gap, place, token)
        for at, gap, place, token in ((0, 0.5, 0, 5), (1, 0.25, 3, 10))
    ]  # fmt: skip


def test_reward_by_term(lake: store.Lake) -> None:
    columns = "step, rule, attempts, reward_mean, reward_std, reward_min, reward_max, zero_share"
    assert ask(lake, "reward_terms", columns) == [
        (0, "right", 3, pytest.approx(1 / 3), pytest.approx(math.sqrt(1 / 3)), 0, 1,
         pytest.approx(2 / 3)),
        (1, "right", 2, 1, 0, 1, 1, 0),
        (0, "short", 3, 0.5, 0, 0.5, 0.5, 0),
    ]  # fmt: skip


def test_a_reward_whose_square_is_out_of_range_leaves_the_views_readable(tmp_path: Path) -> None:
    rewards = [b.reward(one, raw, "right") for one, raw in zip(FIRST, (1e308, 1, 3), strict=True)]
    with store.writer(str(tmp_path), author="tests") as writer:
        rows = {
            "tasks": [TASK], "policies": [POLICY], "runs": [RUN], "prompts": PROMPTS,
            "generations": FIRST, "rewards": rewards,
        }  # fmt: skip
        writer.append(rows, "huge")
    with store.open(str(tmp_path)) as lake:
        for view in ("reward_terms", "reward_groups", "run_curves"):
            lake.sql(f"FROM {view}").rows()
        [(largest, spread)] = ask(lake, "reward_terms", "reward_max, reward_std")
    assert (largest, spread) == (1e308, None)


def test_groups_without_spread(lake: store.Lake) -> None:
    assert ask(lake, "reward_groups", "step, group_id, rule, attempts, flat") == [
        (0, "g0", "right", 2, False), (0, "g1", "right", 1, True), (1, "g2", "right", 2, True),
        (0, "g0", "short", 2, True), (0, "g1", "short", 1, True),
    ]  # fmt: skip


def test_answers_that_got_better(lake: store.Lake) -> None:
    columns = (
        "problem, rule, previous_step, step, previous_reward, reward, change, "
        "previous_generation_id, generation_id"
    )
    best = max(one["generation_id"] for one in SECOND)
    assert ask(lake, "reward_changes", columns) == [
        (PROMPTS[0]["prompt_id"], "right", 0, 1, 0.5, 1, 0.5, FIRST[1]["generation_id"], best)
    ]


def test_answers_that_repeat_one_another(lake: store.Lake) -> None:
    pair = sorted(one["generation_id"] for one in FIRST[:2])
    columns = "step, attempts, groups, characters, generation_id, generation_ids"
    assert ask(lake, "repeated_answers", columns) == [(0, 2, 1, 3, pair[0], pair)]


@pytest.mark.slow
def test_a_large_lake_reads_the_rows_of_a_step_and_the_lists_that_a_figure_needs(
    tmp_path: Path,
) -> None:
    """A lake's tables of more than 4 MB stay in Parquet, whose row groups have few steps each."""
    url = str(tmp_path / "lake")
    drawn = random.Random(0)
    answers = [attempt(at, at // 256, f"g{at // 8}", str(at)) for at in range(1024)]
    tokens = [
        b.rollout_tokens(
            one,
            [drawn.randrange(2**31) for _ in range(600)],
            sampler_logprobs=[-drawn.random()] * 600,
            old_logprobs=[-drawn.random() for _ in range(600)],
        )
        for one in answers
    ]
    with store.writer(url, author="tests") as writer:
        rows = {"tasks": [TASK], "policies": [POLICY], "runs": [RUN], "generations": answers}
        writer.append({**rows, "rollout_tokens": tokens}, "rollouts")
    with store.open(url) as opened:

        def find_scan(columns: str, view: str) -> str:
            query = f"SELECT {columns} FROM {view} WHERE run_id = '{RUN['run_id']}' AND step = 3"
            [plan] = opened.sql(f"EXPLAIN {query}").rows()
            text = re.sub(r"[\s│]", "", plan["explain_value"])
            [scan] = (part for part in text.split("Table:")[1:] if part.startswith("rollout_tok"))
            return scan

        lengths = find_scan("tokens_mean, cut_share", "rollout_steps")
        assert "logprobs" not in lengths
        assert "completion_ids" not in lengths
        assert "completion_ids" not in find_scan("*", "rollout_steps")
        for view in ("rollout_steps", "token_gaps", "clipped_rollouts"):
            scan = find_scan("*", view)
            assert "logprobs" in scan
            assert "step=3" in scan
            assert f"run_id='{RUN['run_id']}'" in scan
        [row] = opened.sql("SELECT surprisal FROM rollout_steps WHERE step = 3").rows()
    sampled = [one["sampler_logprobs"][0] for one in tokens[768:]]
    assert row["surprisal"] == pytest.approx(-sum(sampled) / 256, rel=1e-5)
