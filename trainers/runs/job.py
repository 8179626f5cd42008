"""What a trainer is asked, and the options that every trainer of a model shares."""

# No annotations from __future__: a Config in another module extends Training, and its __init__
# would look for the names of these types there.
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from store.commandline import echo
from store.commandline.progress import Progress, ignore_progress

OverLength: TypeAlias = Literal["refuse", "drop"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a trainer: which lake, which folder, and how it speaks."""

    name: str
    """Name of the member, such as sft."""
    lake_url: str | None
    """Folder of the lake; None means FLYWHEEL_LAKE, else ./lake."""
    out: Path
    """Folder of checkpoints, events and run.json; made where it is missing."""
    at: str | None = None
    """Tag, snapshot number or time that the run reads the lake at; None is the newest."""
    resume: bool = False
    """Go on with the run that `out` holds."""
    quiet: bool = False
    """Say only what goes wrong."""
    progress: Progress = field(default=ignore_progress)

    def say(self, line: str) -> None:
        """Write one line to stderr, unless quiet."""
        if not self.quiet:
            echo.print_note(line)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Options of every trainer of a model; a member's Config extends it."""

    model: str | None = None
    """Folder, Hub name or .gguf file of the model to start from; tiny makes a random one of 3M
    parameters."""
    dataset: str | None = None
    """Dataset to train on: a folder, NAME, NAME@TAG or NAME@SNAPSHOT (default: make it now)."""
    lora: int | None = None
    """Train LoRA adapters of this rank instead of all weights."""
    max_length: int = 4096
    """Most tokens of prompt and completion together."""
    over_length: OverLength = "refuse"
    """What becomes of rows that are longer: refuse to train, or drop them and say how many."""
    save_steps: int = 100
    """Optimisation steps between checkpoints."""
    seed: int = 0
    """Seed of data order, initialisation and sampling."""
    trl: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """KEY=VALUE of TRL's own configuration, such as learning_rate=1e-5; may be repeated."""
