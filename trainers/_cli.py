"""The `trainers` command: which trainers there are."""

from __future__ import annotations

import sys

from cyclopts import App

from store import room
from store.room import Common

_DEFAULT = Common()

app = App(
    name="trainers",
    help="Train policies on datasets of the lake; a trainer is one file in ./flywheel/trainers/.",
    help_format="plaintext",
)


def main() -> None:
    """Run the `trainers` command."""
    room.run(app)


@app.command(name="list")
def list_(*, common: Common = _DEFAULT) -> None:
    """List the trainers, ours and those of ./flywheel/trainers/."""
    found = room.members("trainers")
    for one in found.values():
        sys.stdout.write(f"{one.name}  {one.about}\n")
    if not found:
        sys.stderr.write(
            "no trainers; datasets of `pipelines run` open with datasets.load_dataset as they are\n"
        )
