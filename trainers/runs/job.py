"""The job of a trainer, the options that all trainers share, and options given as KEY=VALUE."""

# No annotations from __future__: a Config in another module extends Training, and its __init__
# would look for the names of these types there.
import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import store
from store.commandline import echo
from store.commandline.echo import Progress, ignore_progress
from store.commandline.members import Count
from store.errors import FlywheelError, LakeNotFound


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a trainer: its lake, its folder, and its output."""

    name: str
    """Name of the member, such as sft."""
    lake_url: str | None
    """Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake."""
    out: Path
    """Folder of checkpoints, events and run.json; created if missing."""
    at: str | None = None
    """Tag, snapshot number or time at which the run reads the lake; None is the newest."""
    resume: bool = False
    """Resume the run in `out`."""
    quiet: bool = False
    """Print errors only."""
    progress: Progress = field(default=ignore_progress)

    def say(self, line: str) -> None:
        """Write one line to stderr, unless quiet."""
        if not self.quiet:
            echo.print_note(line)

    def import_starter(self, tasks: tuple[str, ...] = ()) -> None:
        """Import the starter suite if one of the tasks, every task, or the default lake is missing.

        Raises LakeNotFound if a lake that --lake or FLYWHEEL_LAKE names is missing.
        """
        from store.dossier.pages import read_task_names
        from store.importers import starter
        from store.importers.reading.pieces import run_import, summarize

        try:
            with store.open(self.lake_url) as lake:
                names = read_task_names(lake)
                known = lake.run("SELECT 1 FROM tasks LIMIT 1").one() is not None
            if known and all(map(names.match, tasks)):
                return
        except LakeNotFound:
            if self.lake_url or os.environ.get("FLYWHEEL_LAKE"):
                raise  # a mistyped name must not become a lake
        with store.writer(self.lake_url, author="store import starter") as writer:
            summary = run_import(writer, starter, None, starter.Config())
        self.say(f"starter    {summarize(summary)}")


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of every trainer of a model; a member's Config extends it."""

    model: str | None = None
    """Folder, Hub name or .gguf file of the model to start from; tiny makes a random model with 3M
    parameters."""
    dataset: str | None = None
    """Dataset to train on: a folder, NAME, NAME@TAG or NAME@SNAPSHOT (default: make a new one)."""
    lora: Count | None = None
    """Train LoRA adapters of this rank instead of all weights."""
    max_length: Count = 4096
    """Maximum number of tokens of prompt and completion together."""
    over_length: Literal["refuse", "drop"] = "refuse"
    """What to do with longer rows: refuse to train, or drop them and print how many."""
    save_steps: Count = 100
    """Number of optimization steps between checkpoints."""
    starter: bool = False
    """Import the starter suite if the lake has no tasks or lacks --tasks; create the lake ./lake if
    needed."""
    seed: Annotated[int, Parameter(validator=Number(gte=0, lt=2**32))] = 0
    """Random seed for data order, initialization and sampling."""
    trl: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Setting of TRL's own configuration, as KEY=VALUE, such as learning_rate=1e-5. Repeat it for
    more settings."""


def parse_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE words as a dictionary; the last value of a repeated key counts.

    >>> parse_pairs("judge", ["timing-s=0.1", "baselines=eager"])
    {'timing_s': '0.1', 'baselines': 'eager'}

    Raises FlywheelError: a word has no value; names the option.
    """
    values = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign:
            raise FlywheelError(f'--{option} "{word}" has no value', f"Write --{option} KEY=VALUE.")
        values[key.replace("-", "_")] = text
    return values


def parse_values(option: str, words: Iterable[str]) -> dict[str, Any]:
    """Return what `parse_pairs` does, with numbers, true, false and null parsed.

    >>> parse_values("judge", ["timing-s=0.1", "robustness=false", "baselines=eager"])
    {'timing_s': 0.1, 'robustness': False, 'baselines': 'eager'}
    """
    values: dict[str, Any] = dict(parse_pairs(option, words))
    for name, text in values.items():
        with contextlib.suppress(ValueError):
            values[name] = json.loads(text)
    return values
