"""One supervised training: from a dataset and a model folder to checkpoints, rows and a policy."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import DatasetError
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.runs import processes as ranks
from trainers.runs import recording
from trainers.runs.job import OverLength, Training
from trainers.runs.recording import Run, Stage
from trainers.training import supervised, trl_settings
from trainers.training.checkpoints import FINAL, Checkpoints

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class Fit:
    """The inputs of one training."""

    config: Training
    model: Path
    """Folder of the model that it starts from."""
    parent: str
    """Its policy_id."""
    dataset: Dataset
    out: Path
    """Folder of its checkpoints; the trained model is in `final` there."""
    stage: Stage
    round: int | None = None
    """Round number of its policies; None numbers them by step."""
    offset: int = 0
    """Optimisation steps that the run has made before."""
    defaults: Mapping[str, Any]
    """Settings of SFTConfig, which --trl may replace."""
    rate: float = 1.0
    """Factor of the learning rate."""

    @property
    def final(self) -> Path:
        """Return the folder of the trained model."""
        return self.out / FINAL


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The result of one training."""

    policy_id: str
    steps: int
    loss: float | None
    """Mean over the steps of this process; None if an earlier process had finished them."""
    processes: int


def measure_rows(fit: Fit) -> tuple[datasets.Dataset, Lengths]:
    """Return the rows of a training with their lengths.

    Raises:
        DatasetError: rows are longer than the model is trained on, and are not to be dropped.
    """
    config = fit.config
    rows = fit.dataset.columns(["prompt", "completion"], fit.out / "cache")
    tokenizer = loading.load_tokenizer(fit.model)
    found = ranks.run_on_main(
        lambda: supervised.measure_lengths(rows, tokenizer, config.max_length)
    )
    return rows, supervised.check_lengths(found, config.max_length, config.over_length)


def make_settings(fit: Fit) -> dict[str, Any]:
    """Return the arguments of SFTConfig."""
    from trl.trainer.sft_config import SFTConfig

    ours = {"max_length": fit.config.max_length, **fit.defaults}
    made = trl_settings.make_settings(SFTConfig, fit.config, fit.out, ours)
    rate = made.get("learning_rate", SFTConfig.learning_rate)
    return made | {"learning_rate": rate * fit.rate}


def train_supervised(
    run: Run, fit: Fit, rows: datasets.Dataset, kept: Sequence[int], *, resume: bool
) -> Fitted:
    """Train on the rows, and record metrics, checkpoints and their policies.

    With `resume`, continue from the last complete checkpoint in `fit.out`, if there is one.
    """
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    # The arguments come first, because with ZeRO-3 and FSDP they decide how the model is loaded.
    arguments = trl_settings.make_config(SFTConfig, make_settings(fit))
    given: dict[str, Any] = dict(arguments.model_init_kwargs or {})  # pyright: ignore
    arguments.model_init_kwargs = None
    model = loading.load_model(fit.model, lora=fit.config.lora, **given)
    checkpoints = Checkpoints(
        run=run,
        out=fit.out,
        stage=fit.stage,
        parent=fit.parent,
        dataset_id=fit.dataset.dataset_id,
        round=fit.round,
        offset=fit.offset,
    )
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=rows.select(kept),
        processing_class=loading.load_tokenizer(fit.model),
        peft_config=loading.make_adapter_config(fit.model, fit.config.lora),
        callbacks=[
            recording.make_metrics_callback(run, offset=fit.offset),
            checkpoints.make_callback(),
        ],
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
        shutil.rmtree(fit.out / "cache", ignore_errors=True)
    return fitted


_BATCH_ROWS = 256


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


def measure_lengths(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Lengths:
    """Return the lengths of rows with prompt and completion, as TRL renders them."""
    found: list[int] = []
    for start in range(0, len(rows), _BATCH_ROWS):
        batch: dict[str, Any] = rows[start : start + _BATCH_ROWS]
        turns = [
            [*prompt, *completion]
            for prompt, completion in zip(batch["prompt"], batch["completion"], strict=True)
        ]
        encoded: Any = tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)
        found += [len(one) for one in encoded["input_ids"]]
    return Lengths(
        rows=len(found),
        tokens=sum(found),
        longest=max(found, default=0),
        kept=[index for index, length in enumerate(found) if length <= max_length],
    )


def check_lengths(found: Lengths, max_length: int, over_length: OverLength) -> Lengths:
    """Return the lengths if the rows can be trained on.

    Raises:
        DatasetError: rows are over length and are not to be dropped, or none is left.
    """
    if not found.over:
        return found
    told = (
        f"{found.over} of {found.rows} rows are longer than {max_length} tokens; "
        f"the longest has {found.longest}"
    )
    if over_length == "refuse" or not found.kept:
        raise DatasetError(
            told, f"Give --max-length {found.longest}, or --over-length drop to leave them out."
        )
    return found
