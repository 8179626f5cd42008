"""What the trainer relies on in TRL's private parts, held against the TRL that is installed."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

import trainers
from trainers.models import loading
from trainers.rewarding import scoring

# TRL's trainers are imported where they are used: every test process collects this file, and few
# run it.
if TYPE_CHECKING:
    from watched_trainer import Watched

RAN = (1, 16)
"""The versions of TRL that this file was run with in CI; pyproject.toml admits no other."""
GROUP = 2
# transformers 5.17 has the old name alone, and 5.23 tells of the new one.
pytestmark = pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing:FutureWarning")


def test_the_range_in_pyproject_is_the_one_that_is_tested() -> None:
    assert tuple(int(part) for part in version("trl").split(".")[:2]) == RAN
    text = (Path(trainers.__file__).parent.parent / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'"trl(>.*?)"', text) == [f">={RAN[0]}.{RAN[1]},<{RAN[0]}.{RAN[1] + 1}"]


def test_the_private_hook_takes_inputs_alone() -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    hook = GRPOTrainer._generate_and_score_completions
    assert list(inspect.signature(hook).parameters) == ["self", "inputs"]


@pytest.fixture(scope="module")
def two_step_trainer(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Return a trainer after two steps of four groups of two, made of two passes each."""
    import datasets
    from trl.trainer.grpo_config import GRPOConfig
    from watched_trainer import Watched

    folder = tmp_path_factory.mktemp("trl")
    model = loading.write_tiny_model(folder / "model", 0)
    rows = datasets.Dataset.from_dict(
        {
            "task_id": [f"task {n}" for n in range(6)],
            "prompt": [[{"role": "user", "content": ""}]] * 6,
        }
    )
    arguments = GRPOConfig(
        output_dir=str(folder / "out"),
        max_steps=2,
        num_generations=GROUP,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_completion_length=4,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        loss_type="grpo",
        remove_unused_columns=False,
        **loading.choose_precision(),
    )
    made = Watched(
        model=loading.load_model(model),
        args=arguments,
        train_dataset=rows,
        processing_class=loading.load_tokenizer(model),
    )
    made.train()
    return made


@pytest.mark.slow
def test_the_hook_is_called_once_a_step_with_groups_side_by_side(two_step_trainer: Watched) -> None:
    assert [len(batch) for batch in two_step_trainer.batches] == [8, 8]
    for batch in two_step_trainer.batches:
        groups = [batch[at : at + GROUP] for at in range(0, 8, GROUP)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == 4


def test_the_reward_gets_the_prompts_and_columns_of_the_hook(two_step_trainer: Watched) -> None:
    for step, given in enumerate(two_step_trainer.calls):
        assert given["prompts"] == [[{"role": "user", "content": f"{step}"}]] * 8
        assert given["place"] == list(range(8))
        assert given["task_id"] == two_step_trainer.batches[step]
        for turns, ids in zip(given["completions"], given["completion_ids"], strict=True):
            assert turns[-1]["role"] == "assistant"
            assert isinstance(turns[-1]["content"], str)
            assert 1 <= len(ids) <= 4
    assert list(two_step_trainer._logs["extra"]) == ["generation_id"]
    logged = [row for row in two_step_trainer.state.log_history if "attempts" in row]
    assert [row["attempts"] for row in logged] == [1.0, 1.0]
    assert two_step_trainer.eos_token_ids
    assert two_step_trainer.num_generations == GROUP


def test_advantages_that_are_stored_are_those_that_train(two_step_trainer: Watched) -> None:
    import numpy as np
    from watched_trainer import REWARDS

    raw = np.array([np.nan if one is None else one for one in REWARDS])
    groups = [str(at // GROUP) for at in range(8)]
    stored, flat = scoring.normalize_rewards(raw, groups, 1e-4)
    assert flat == 2  # 0.25 twice, and one without its pair
    # TRL shuffles the answers of a step before it divides them into passes.
    for one in two_step_trainer.advantages:
        assert one == pytest.approx(np.nan_to_num(stored).tolist(), abs=1e-4)


def test_a_checkpoint_is_resumed_at_its_step(two_step_trainer: Watched) -> None:
    # _step counts from 0 in every process, so that the trainer's own step number is global_step.
    assert two_step_trainer.state.global_step == 2
    assert "_step" in vars(two_step_trainer)
