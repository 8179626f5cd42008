"""What --trl passes on to TRL, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from store.errors import FlywheelError, UnknownName
from trainers.runs.job import Training
from trainers.training import trl_trainers

# TRL's settings are imported where they are used: every test process collects this file, and few
# run it.
if TYPE_CHECKING:
    from trl.trainer.sft_config import SFTConfig


@pytest.fixture
def sft_config() -> type[SFTConfig]:
    from trl.trainer.sft_config import SFTConfig

    return SFTConfig


def test_values_get_the_types_that_trl_declares(sft_config: type[SFTConfig]) -> None:
    words = ("learning_rate=1e-5", "max_steps=3", "packing=true", "bf16=false", "optim=sgd")
    assert trl_trainers.parse_words(sft_config, words) == {
        "learning_rate": 1e-5, "max_steps": 3, "packing": True, "bf16": False, "optim": "sgd",
    }  # fmt: skip
    assert trl_trainers.parse_words(sft_config, ()) == {}


def test_unknown_keys_name_the_nearest_and_bad_values_are_refused(
    sft_config: type[SFTConfig],
) -> None:
    with pytest.raises(UnknownName, match='Did you mean "learning_rate"'):
        trl_trainers.parse_words(sft_config, ("learning_rat=1",))
    with pytest.raises(FlywheelError, match="has no value"):
        trl_trainers.parse_words(sft_config, ("packing",))
    with pytest.raises(FlywheelError, match="learning_rate"):
        trl_trainers.parse_words(sft_config, ("learning_rate=fast",))
    with pytest.raises(FlywheelError, match="Give --max-length instead"):
        trl_trainers.parse_words(sft_config, ("max_length=5",))
    with pytest.raises(FlywheelError, match="never do that"):
        trl_trainers.parse_words(sft_config, ("trust_remote_code=true",))


def test_what_is_passed_wins_over_defaults(sft_config: type[SFTConfig], tmp_path: Path) -> None:
    config = Training(seed=5, trl=("logging_steps=7",))
    made = trl_trainers.make_settings(sft_config, config, tmp_path, {"num_train_epochs": 1})
    assert (made["logging_steps"], made["seed"], made["num_train_epochs"]) == (7, 5, 1)
    assert made["report_to"] == ["tensorboard"]
    assert trl_trainers.make_config(sft_config, made)[0].seed == 5
