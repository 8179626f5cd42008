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
from store.commandline.echo import show_progress
from store.commandline.members import CommandApp, Common, Member, make_room_app
from store.errors import FlywheelError, UnknownName
from trainers.cli.rescore import rescore
from trainers.cli.rollout import rollout
from trainers.runs import processes
from trainers.runs.job import Job

_DEFAULT = Common()

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
    trainer = members.find_member("trainers", name)
    module = _load(trainer)
    hints = typing.get_type_hints(module.Config, include_extras=True)

    def name_option(field: str) -> str:
        notes = getattr(hints[field], "__metadata__", ())
        named = [name for note in notes if isinstance(note, Parameter) for name in note.name or ()]
        return named[0] if named else f"--{field.replace('_', '-')}"

    lines = [f"{trainer.name}: {trainer.about}", *members.doc_lines(trainer.file), "", "Options"]
    for option in dataclasses.fields(module.Config):
        default = option.default
        shown = "" if default is None or default == () else f" = {default}"
        lines.append(f"  {name_option(option.name)}{shown}")
    for preset, values in _list_presets(module).items():
        lines += ["", f"--preset {preset}"]
        for field, value in values.items():
            text = " ".join(value) if isinstance(value, tuple) else json.dumps(value).strip('"')
            lines.append(f"  {name_option(field)} {text}")
    lines += ["", f"`trainers run {trainer.name} --help` explains each option."]
    echo.print_lines("\n".join(lines))


def _make_command(trainer: Member) -> Callable[..., None]:
    """Make the function behind `trainers run NAME`."""
    module = _load(trainer)
    presets = _list_presets(module)
    preset = members.find_option(sys.argv[1:], "--preset")
    if preset is not None and preset not in presets:
        raise UnknownName.among(f"preset of {trainer.name}", preset, presets)
    values = {} if preset is None else presets[preset]
    config_type: type[Any] = module.Config
    if values:
        # The preset's values become defaults, which --help shows.
        hints = typing.get_type_hints(config_type, include_extras=True)
        body = {
            "__annotations__": {name: hints[name] for name in values},
            "__module__": config_type.__module__,
            "__doc__": config_type.__doc__,
        } | values
        config_type = type(config_type.__name__, (config_type,), body)
        config_type = dataclasses.dataclass(frozen=True, kw_only=True)(config_type)

    def command(
        *,
        config: Any = None,
        preset: str | None = None,  # read before
        at: str | None = None,
        out: Path | None = None,
        resume: bool = False,
        common: Common = _DEFAULT,
    ) -> None:
        config = config or config_type()
        options = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
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
            out = Path("runs") / trainer.name / f"{moment}-{secrets.token_hex(2)}"
        with show_progress(quiet=common.quiet or not processes.is_main()) as progress:
            job = Job(
                name=trainer.name,
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

    def option(help: str, kind: type = str) -> Any:
        return Annotated[kind | None, Parameter(help=help, show_default=False)]

    command.__annotations__ |= {
        "config": Annotated[config_type | None, Parameter(name="*")],
        "preset": option(
            f"Start from this set of options: {', '.join(presets) or 'none exist'}. Options on the "
            "command line override it."
        ),
        "at": option("Read the lake at this tag, snapshot number or ISO time (default: newest)."),
        "out": option("Folder of the run (default: ./runs/NAME/TIME).", Path),
        "resume": Annotated[
            bool,
            Parameter(help="Resume the run in --out from its last checkpoint.", negative=""),
        ],
        "common": Common,
    }
    return command


def _list_presets(module: ModuleType) -> Mapping[str, dict[str, Any]]:
    return getattr(module, "PRESETS", {})


def _load(trainer: Member) -> ModuleType:
    """Import a trainer; raises FlywheelError where it lacks a part of the contract."""
    module = trainer.load()
    missing = [name for name in ("Config", "run") if not hasattr(module, name)]
    if missing:
        raise FlywheelError(
            f"{trainer.file} defines no {', '.join(missing)}",
            "A trainer defines Config, run: see trainers/README.md.",
        )
    return module


if __name__ == "__main__":
    main()
