"""TRL's trainers: what configures them (our defaults and --trl), and one supervised training."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from store import faults
from store.errors import DatasetError, FlywheelError, UnknownName
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.runs import processes
from trainers.runs.job import Training, parse_pairs
from trainers.runs.recording import EVENTS, Checkpoints

if TYPE_CHECKING:
    import datasets


Owned: TypeAlias = Mapping[str, str | None]
"""Settings of TRL that --trl refuses, with the option to use instead; None for those without."""

_OWNED: Owned = {
    "output_dir": "--out",
    "max_length": "--max-length",
    "save_steps": "--save-steps",
    "seed": "--seed",
    "data_seed": "--seed",
    "resume_from_checkpoint": "--resume",
    "trust_remote_code": None,
    "push_to_hub": None,
}
"""Those of all trainers; None for unsupported settings."""

_STORED = "What is stored of a run rests on it."


def make_settings(
    kind: type,
    config: Training,
    out: Path,
    defaults: Mapping[str, Any],
    owned: Owned | None = None,
) -> dict[str, Any]:
    """Return the arguments of a TRL configuration.

    Args:
        kind: SFTConfig, GRPOConfig or another subclass of TrainingArguments.
        config: Options of the trainer; `config.trl` overrides everything except its own options.
        out: Folder of checkpoints; TensorBoard's events go into a folder of it.
        defaults: Defaults of the trainer, which override those of all trainers.
        owned: Settings of the trainer that --trl may not change.

    Raises:
        UnknownName: a key that TRL does not have; names the nearest.
        FlywheelError: a value that does not fit, or a key that an option of ours sets.
    """
    ours = {
        "output_dir": str(out),
        "seed": config.seed,
        "save_strategy": "steps",
        "save_steps": config.save_steps,
        "logging_steps": 1,
        "disable_tqdm": True,
        "report_to": ["tensorboard"] if importlib.util.find_spec("tensorboard") else "none",
        **loading.choose_precision(),
    }
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(out / EVENTS))
    passed = parse_words(kind, config.trl, owned)
    if passed.get("fp16"):
        ours["bf16"] = False
    return ours | dict(defaults) | passed


def make_config(kind: Any, settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a TRL configuration, for one GPU per process, and its options of the model.

    A single process would spread its batches over all GPUs that it sees (DataParallel), including
    those of the judges.

    TRL sets `gradient_checkpointing`, which newer versions of transformers have renamed and warn
    about; older ones know only this name.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
        config = kind(**settings)
    if config.n_gpu > 1:
        config._n_gpu = 1
    model_options = dict(config.model_init_kwargs or {})
    config.model_init_kwargs = None
    return config, model_options


def stop_printing(trainer: Any) -> None:
    """Keep a trainer's metrics off stdout, which is for results; the lake stores them."""
    from transformers import PrinterCallback, ProgressCallback

    for printing in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(printing)


def parse_words(kind: Any, words: tuple[str, ...], owned: Owned | None = None) -> dict[str, Any]:
    """Return KEY=VALUE words as values of the types that a TRL configuration declares.

    Besides those of all trainers, the `owned` settings are refused; None as the option stands for
    one that stored rows depend on.

    Raises:
        UnknownName: a key that TRL does not have; names the nearest.
        FlywheelError: a value that does not fit, or a key that is refused.

    >>> from trl import SFTConfig
    >>> parse_words(SFTConfig, ("learning_rate=1e-5", "packing=true"))
    {'learning_rate': 1e-05, 'packing': True}
    """
    from transformers import HfArgumentParser

    known = {field.name for field in dataclasses.fields(kind) if field.init}
    arguments: list[str] = []
    for key, text in parse_pairs("trl", words).items():
        if key not in known:
            raise UnknownName.among(f"setting of {kind.__name__}", key, known)
        for refused, why in ((_OWNED, "Trainers never do that."), (owned or {}, _STORED)):
            if key in refused:
                hint = f"Give {refused[key]} instead." if refused[key] else why
                raise FlywheelError(f"--trl {key} is not passed on", hint)
        arguments += [f"--{key}", text]

    class Parser(HfArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise FlywheelError(f"--trl: {message}", f"See TRL's documentation of {kind.__name__}.")

    parser = Parser(kind, argument_default=argparse.SUPPRESS, exit_on_error=False)
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        action.default, action.required = argparse.SUPPRESS, False
    try:
        return vars(parser.parse_args(arguments))
    except argparse.ArgumentError as error:
        raise FlywheelError(f"--trl: {error}") from None


def silence_libraries() -> None:
    """Keep internal messages of libraries off stderr, and progress bars unless it is a terminal.

    Raises FlywheelError if one of them is not installed.
    """
    faults.require_packages("transformers", "trl", "torch")
    # peft uses an older name of transformers.
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
    loading.hide_progress_bars()
    if not sys.stderr.isatty():
        import datasets

        datasets.disable_progress_bars()


# One supervised training: from a dataset and a model folder to checkpoints, rows and a policy.

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

    Raises DatasetError: rows are longer than the model is trained on, and are not to be dropped, or
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

    measured = processes.run_on_main(measure)
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


def make_sft_settings(
    config: Training, out: Path, defaults: Mapping[str, Any] | None = None, rate: float = 1.0
) -> dict[str, Any]:
    """Return the arguments of SFTConfig, with the learning rate times `rate`.

    --trl may replace the defaults.
    """
    from trl.trainer.sft_config import SFTConfig

    ours = {"max_length": config.max_length, **(defaults or {})}
    settings = make_settings(SFTConfig, config, out, ours)
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
    arguments, model_options = make_config(SFTConfig, settings)
    trainer = SFTTrainer(
        model=loading.load_model(model_folder, lora=config.lora, **model_options),
        args=arguments,
        train_dataset=rows,
        processing_class=loading.load_tokenizer(model_folder),
        peft_config=loading.make_adapter_config(model_folder, config.lora),
        callbacks=[checkpoints.make_callback()],
    )
    stop_printing(trainer)
    started, folder = checkpoints.resume() if resume else (0, None)
    if 0 < arguments.max_steps <= started:
        # The last step is done, and the Trainer would take another one before it looks.
        arguments.max_steps, arguments.num_train_epochs = -1, 0
    trained = trainer.train(resume_from_checkpoint=folder)
    checkpoints.write_final(trainer)
    steps = int(trainer.state.global_step)
    fitted = Fitted(
        policy_id=checkpoints.record_final(steps),
        steps=steps,
        loss=float(trained.training_loss) if steps > started else None,
        processes=trainer.accelerator.num_processes,
    )
    if processes.is_main():
        shutil.rmtree(checkpoints.out / "cache", ignore_errors=True)
    return fitted
