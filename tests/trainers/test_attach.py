"""`store.attach`: any GRPOTrainer of TRL logs its rollouts and metrics by one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

import store
from store.rollouts.trl import find_token_ends
from trainers.models import loading

pytestmark = pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing:FutureWarning")


def count_characters(completions: list[str], **_: Any) -> list[float | None]:
    """Reward length, as a reward function of TRL knows nothing of a lake."""
    return [len(one) / 10 for one in completions]


def prefer_the_second(completions: list[str], **_: Any) -> list[float | None]:
    """Reward every second answer, and judge no first one."""
    return [None if at % 2 == 0 else 1.0 for at in range(len(completions))]


def test_a_trainer_of_trl_logs_what_its_loss_gets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import datasets
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    model = loading.write_tiny_model(tmp_path / "model", 0)
    rows = {"prompt": ["def one(", "def two("] * 2, "task": ["one", "two"] * 2}
    arguments = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=2,
        num_generations=2,
        num_iterations=2,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_completion_length=4,
        mask_truncated_completions=True,
        beta=0.1,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        **loading.choose_precision(),
    )
    trainer = GRPOTrainer(
        model=str(model),
        reward_funcs=[count_characters, prefer_the_second],
        args=arguments,
        train_dataset=datasets.Dataset.from_dict(rows),
        processing_class=loading.load_tokenizer(model),
    )
    url = str(tmp_path / "lake")
    store.attach(trainer, "attached", lake=url)
    trainer.train()
    assert not [one for one in caplog.records if "attach" in one.message]
    store.attach(trainer, "late", lake=url)
    assert "the 2 steps that the trainer has made are not logged" in caplog.text

    with store.open(url) as lake:
        [run] = lake.sql("SELECT run_id, config FROM runs").rows()
        attempts = lake.sql(
            "SELECT generations.*, rollout_tokens.* EXCLUDE (generation_id, run_id, step), "
            "rollout_tokens.step AS trained FROM generations JOIN rollout_tokens "
            "USING (generation_id) ORDER BY problem, sample_index"
        ).rows()
        rewards = lake.sql(
            "SELECT rule, count(*) AS n FROM rewards GROUP BY rule ORDER BY rule"
        ).rows()
        metrics = lake.sql(
            "SELECT step FROM metrics WHERE name = 'kl' AND run_id = $1 ORDER BY step",
            [run["run_id"]],
        ).rows()
        ends = lake.sql("SELECT outcome FROM run_ends").rows()
    # One batch serves two steps, and belongs to the first.
    assert [(row["problem"], row["sample_index"]) for row in attempts] == [
        ("one", 0), ("one", 1), ("two", 0), ("two", 1),
    ]  # fmt: skip
    assert sorted(row["micro_batch"] for row in attempts) == [0, 0, 1, 1]
    for row in attempts:
        assert (row["trained"], row["policy_step"], row["rank"]) == (0, 0, 0)
        assert len(row["completion_ids"]) == len(row["old_logprobs"]) == len(row["ref_logprobs"])
        assert row["prompt_ids"]
        assert row["advantage"] is not None
        if row["finish_reason"] == "length":
            assert row["loss_mask"] == [False] * len(row["completion_ids"])
    assert sum(row["advantage"] for row in attempts) == pytest.approx(0, abs=1e-4)
    assert [(row["rule"], row["n"]) for row in rewards] == [
        ("count_characters", 4), ("prefer_the_second", 2),
    ]  # fmt: skip
    assert [row["step"] for row in metrics] == [1, 2]
    assert '"beta": 0.1' in run["config"]
    assert len(ends) == 1


def test_tokens_end_where_their_text_does(tmp_path: Path) -> None:
    tokenizer: Any = loading.load_tokenizer(loading.write_tiny_model(tmp_path / "model", 0))
    text = "x = 1  # ─▶ 漢字 done"
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    ends = find_token_ends(tokenizer, ids, text)
    assert ends is not None
    assert ends == sorted(ends)
    assert ends[-1] == len(text)
    assert find_token_ends(tokenizer, ids, "another text") is None
    assert find_token_ends(object(), ids, text) is None
