"""The `trainers` command: list the trainers, show one, run one over a pinned snapshot."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from cyclopts import Parameter

from store.commandline import echo, members
from store.commandline.help import CommandApp, make_room_app
from store.commandline.members import Common, Member
from store.commandline.progress import show_progress
from store.errors import FlywheelError, UnknownName
from trainers.cli.rescore import rescore
from trainers.cli.rollout import rollout
from trainers.runs import processes
from trainers.runs.job import Job

_DEFAULT = Common()
_NEEDED = ("Config", "run")

app = make_room_app(
    "trainers",
    """Train policies on datasets of the lake, and record every attempt and every checkpoint.

To train on several GPUs, start the same command with torchrun or accelerate. Only rank 0 writes to
the lake.""",
    [
        "trainers list",
        "trainers run sft --preset tiny",
        "trainers run sft --model FOLDER --dataset sft@v1 --lora 16",
        "trainers run self-supervised --model runs/sft/NAME/final --rounds 3",
        "torchrun --nproc-per-node 8 -m trainers run sft --model FOLDER --out runs/8",
    ],
)
members.add_list(app, "trainers")
run_app = CommandApp(name="run", help="Train a policy, or resume an interrupted run.")
app.command(run_app)
app.command(rollout)
app.command(rescore)


def main() -> None:
    """Run the `trainers` command."""
    members.run(app, members.Group(run_app, "trainers", _make_command))


@app.command
def show(name: str, /, *, common: Common = _DEFAULT) -> None:
    """Explain one trainer: what it does, its options with their defaults, and its presets.

    Parameters
    ----------
    name
        Name of the trainer.
    """
    one = members.find_member("trainers", name)
    module = _load(one)
    hints = typing.get_type_hints(module.Config, include_extras=True)

    def name_option(field: str) -> str:
        notes = getattr(hints[field], "__metadata__", ())
        named = [name for note in notes if isinstance(note, Parameter) for name in note.name or ()]
        return named[0] if named else f"--{field.replace('_', '-')}"

    lines = [f"{one.name}: {one.about}", *members.doc_lines(one.file), "", "Options"]
    for option in dataclasses.fields(module.Config):
        default = option.default
        shown = "" if default is None or default == () else f" = {default}"
        lines.append(f"  {name_option(option.name)}{shown}")
    for preset, values in _list_presets(module).items():
        lines += ["", f"--preset {preset}"]
        for field, value in values.items():
            text = " ".join(value) if isinstance(value, tuple) else json.dumps(value).strip('"')
            lines.append(f"  {name_option(field)} {text}")
    lines += ["", f"`trainers run {one.name} --help` explains each option."]
    echo.print_lines("\n".join(lines))


def _make_command(one: Member) -> Callable[..., None]:
    """Make the function behind `trainers run NAME`."""
    module = _load(one)
    preset = members.find_option(sys.argv[1:], "--preset")  # which sets defaults
    if preset is not None and preset not in _list_presets(module):
        raise UnknownName.among(f"preset of {one.name}", preset, _list_presets(module))
    values = {} if preset is None else dict(_list_presets(module)[preset])
    config_type = _set_defaults(module.Config, values)

    def command(
        *,
        config: Any = None,
        preset: str | None = None,  # read before
        at: str | None = None,
        out: Path | None = None,
        resume: bool = False,
        common: Common = _DEFAULT,
    ) -> None:
        given = config or config_type()
        options = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
        if "trl" in values and options["trl"] != values["trl"]:
            options["trl"] = (*values["trl"], *options["trl"])
        if out is None:
            if resume:
                raise FlywheelError("--resume needs the folder of the run", "Name it with --out.")
            if processes.count_processes() > 1:
                raise FlywheelError(
                    f"{processes.count_processes()} processes need one folder that they all know",
                    "Name it with --out.",
                )
            # Two runs may begin in one second.
            moment = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
            out = Path("runs") / one.name / f"{moment}-{secrets.token_hex(2)}"
        with show_progress(quiet=common.quiet or not processes.is_main()) as progress:
            job = Job(
                name=one.name,
                lake_url=common.lake,
                out=out,
                at=at,
                resume=resume,
                quiet=common.quiet,
                progress=progress,
            )
            line = module.run(job, module.Config(**options))
        if processes.is_main():
            echo.print_result(str(line))

    presets = ", ".join(_list_presets(module)) or "none exist"
    command.__annotations__ |= {
        "config": Annotated[config_type | None, Parameter(name="*")],
        "preset": _option(
            f"Start from this set of options: {presets}. Options on the command line override it."
        ),
        "at": _option("Read the lake at this tag, snapshot number or ISO time (default: newest)."),
        "out": _option("Folder of the run (default: ./runs/NAME/TIME).", Path),
        "resume": Annotated[
            bool,
            Parameter(help="Resume the run in --out from its last checkpoint.", negative=""),
        ],
        "common": Common,
    }
    return command


def _list_presets(module: ModuleType) -> Mapping[str, dict[str, Any]]:
    return getattr(module, "PRESETS", {})


def _set_defaults(kind: type, values: dict[str, Any]) -> type:
    """Return a dataclass with other defaults, which its --help shows."""
    if not values:
        return kind
    hints = typing.get_type_hints(kind, include_extras=True)
    body = {
        "__annotations__": {name: hints[name] for name in values},
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    } | values
    return dataclasses.dataclass(frozen=True, kw_only=True)(type(kind.__name__, (kind,), body))


def _load(one: Member) -> ModuleType:
    """Import a trainer; raises FlywheelError where it lacks a part of the contract."""
    module = one.load()
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise FlywheelError(
            f"{one.file} defines no {', '.join(missing)}",
            f"A trainer defines {', '.join(_NEEDED)}: see trainers/README.md.",
        )
    return module


def _option(help: str, kind: type = str) -> Any:
    return Annotated[kind | None, Parameter(help=help, show_default=False)]


if __name__ == "__main__":
    main()
