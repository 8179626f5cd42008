"""TRL's configuration: our defaults, settings from --trl, and settings that it may not change."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from store.errors import FlywheelError, UnknownName
from trainers.models import loading
from trainers.runs.job import Training, parse_pairs
from trainers.runs.recording import EVENTS

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
    """Keep internal messages of libraries off stderr, and progress bars unless it is a terminal."""
    # peft uses an older name of transformers.
    warnings.filterwarnings("ignore", ".*is_gradient_checkpointing.*", FutureWarning)
    loading.hide_progress_bars()
    if not sys.stderr.isatty():
        import datasets

        datasets.disable_progress_bars()
