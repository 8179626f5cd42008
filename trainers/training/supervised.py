"""One supervised training: from a dataset and a model folder to checkpoints, rows and a policy."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import DatasetError
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.runs import processes as ranks
from trainers.runs.job import Training
from trainers.runs.recording import Checkpoints
from trainers.training import trl_settings

if TYPE_CHECKING:
    import datasets

_BATCH_ROWS = 256


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The result of one training."""

    policy_id: str
    steps: int
    loss: float | None
    """Mean over the steps of this process; None if an earlier process had finished them."""
    processes: int


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """The lengths of a dataset's rows, in tokens of one tokenizer."""

    rows: int
    tokens: int
    longest: int
    kept: list[int]
    """Indices of the rows that fit."""

    @property
    def over(self) -> int:
        """Return the number of rows that do not fit."""
        return self.rows - len(self.kept)


def measure_rows(
    config: Training, dataset: Dataset, model: Path, out: Path
) -> tuple[datasets.Dataset, Lengths]:
    """Return the rows of a training with their lengths.

    Raises:
        DatasetError: rows are longer than the model is trained on, and are not to be dropped, or
            none is left.
    """
    rows = dataset.columns(["prompt", "completion"], out / "cache")
    tokenizer: Any = loading.load_tokenizer(model)

    def measure() -> list[int]:
        lengths: list[int] = []
        for start in range(0, len(rows), _BATCH_ROWS):
            batch: dict[str, Any] = rows[start : start + _BATCH_ROWS]
            turns = [
                [*prompt, *completion]
                for prompt, completion in zip(batch["prompt"], batch["completion"], strict=True)
            ]
            # As TRL renders them.
            encoded = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)
            lengths += map(len, encoded["input_ids"])
        return lengths

    measured = ranks.run_on_main(measure)
    lengths = Lengths(
        rows=len(measured),
        tokens=sum(measured),
        longest=max(measured, default=0),
        kept=[index for index, length in enumerate(measured) if length <= config.max_length],
    )
    if lengths.over and (config.over_length == "refuse" or not lengths.kept):
        raise DatasetError(
            f"{lengths.over} of {lengths.rows} rows are longer than {config.max_length} tokens; "
            f"the longest has {lengths.longest}",
            f"Give --max-length {lengths.longest}, or --over-length drop to leave them out.",
        )
    return rows, lengths


def make_settings(
    config: Training, out: Path, defaults: Mapping[str, Any] | None = None, rate: float = 1.0
) -> dict[str, Any]:
    """Return the arguments of SFTConfig, with the learning rate times `rate`.

    --trl may replace the defaults.
    """
    from trl.trainer.sft_config import SFTConfig

    ours = {"max_length": config.max_length, **(defaults or {})}
    settings = trl_settings.make_settings(SFTConfig, config, out, ours)
    learning_rate = settings.get("learning_rate", SFTConfig.learning_rate)
    return settings | {"learning_rate": learning_rate * rate}


def train_supervised(
    checkpoints: Checkpoints,
    config: Training,
    settings: Mapping[str, Any],
    model_folder: Path,
    rows: datasets.Dataset,
    *,
    resume: bool,
) -> Fitted:
    """Train on the rows, and record metrics, checkpoints and their policies.

    With `resume`, continue from the last complete checkpoint, if there is one.
    """
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    # The arguments come first, because with ZeRO-3 and FSDP they decide how the model is loaded.
    arguments, model_options = trl_settings.make_config(SFTConfig, settings)
    trainer = SFTTrainer(
        model=loading.load_model(model_folder, lora=config.lora, **model_options),
        args=arguments,
        train_dataset=rows,
        processing_class=loading.load_tokenizer(model_folder),
        peft_config=loading.make_adapter_config(model_folder, config.lora),
        callbacks=[checkpoints.make_callback()],
    )
    trl_settings.stop_printing(trainer)
    started, folder = checkpoints.resume() if resume else (0, None)
    trained = trainer.train(resume_from_checkpoint=folder)
    checkpoints.write_final(trainer)
    steps = int(trainer.state.global_step)
    fitted = Fitted(
        policy_id=checkpoints.record_final(steps),
        steps=steps,
        loss=float(trained.training_loss) if steps > started else None,
        processes=trainer.accelerator.num_processes,
    )
    if ranks.is_main():
        shutil.rmtree(checkpoints.out / "cache", ignore_errors=True)
    return fitted
