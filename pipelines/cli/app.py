"""The `pipelines` command: list the pipelines, show one, run one over a pinned snapshot."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import store
from pipelines.contract import Request
from pipelines.rendering.messages import template_hash
from pipelines.selection.queries import OURS, OWN
from store import read_description
from store.commandline import echo, members
from store.commandline.echo import show_progress
from store.commandline.members import CommandApp, Common, Format, Member, make_room_app
from store.errors import DatasetError

if TYPE_CHECKING:
    from pipelines.datasets.job import Dataset, Job


_DEFAULT = Common()
_NEEDED = ("Config", "DATASET_TYPE", "TEMPLATE", "render", "select")

app = make_room_app(
    "pipelines",
    "Make datasets from a pinned snapshot: SQL selects the rows, templates render the texts.",
    [
        "pipelines list",
        "pipelines run contrastive-batch",
        "pipelines run contrastive-batch --explain diag_matmul",
        "pipelines run sft --at v1 --dry-run",
    ],
)
members.add_list(app, "pipelines")
run_app = CommandApp(
    name="run",
    help="Make a dataset: a folder that `datasets.load_dataset` opens, recorded in the lake.",
)
app.command(run_app)


def main() -> None:
    """Run the `pipelines` command."""
    members.run(app, *groups)


@app.command
def show(name: str, /, *, common: Common = _DEFAULT) -> None:
    """Explain one pipeline: what it makes, its options, its template and its SQL.

    Parameters
    ----------
    name
        Name of the pipeline.
    """
    member = members.find_member("pipelines", name)
    module = member.load(*_NEEDED)
    lines = [(module.__doc__ or member.about).strip(), ""]
    lines += [f"makes      {module.DATASET_TYPE} rows"]
    lines += [f"file       {member.file}"]
    lines += [f"template   {module.TEMPLATE} ({template_hash(module.TEMPLATE)[:12]})"]
    for root in (OURS, OWN):
        for file in sorted((root / member.file.stem).glob("*.sql")):
            lines.append(f"sql        {file.name}: {read_description(file.read_text('utf-8'))}")
    lines += ["", "options"]
    lines += [*members.list_options(module.Config), *members.list_options(Request)]
    lines += ["", f"`pipelines run {member.name} --help` explains each option."]
    echo.print_lines("\n".join(lines))


def _make_command(one: Member) -> Callable[..., None]:
    """Make the function behind `pipelines run NAME`."""
    module = one.load(*_NEEDED)

    def command(
        *,
        config: Any = None,
        request: Any = None,
        at: str | None = None,
        name: str | None = None,
        out: Path | None = None,
        max_tokens: int | None = None,
        tokenizer: Path | None = None,
        dry_run: bool = False,
        explain: str | None = None,
        format: Format = "table",
        common: Common = _DEFAULT,
    ) -> None:
        from pipelines.datasets.job import Job, make_counter

        if name is not None and not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            raise DatasetError(f'"{name}" cannot name a dataset', "Use letters, digits, . _ and -.")
        with store.open(common.lake, at) as lake:
            job = Job(
                lake=lake,
                pipeline=one.name,
                module=module,
                config=config or module.Config(),
                request=request or Request(),
                name=name or one.name,
                counter=make_counter(tokenizer),
                max_tokens=max_tokens,
            )
            if explain is not None:
                if not hasattr(module, "explain"):
                    raise DatasetError(
                        f"{job.pipeline} draws no exemplars that it could explain",
                        "Try `pipelines run contrastive-batch --explain TASK`.",
                    )
                console = echo.open_console(width=None if sys.stdout.isatty() else 100)
                console.print(module.explain(lake, job.config, job.request, explain))
            elif dry_run:
                _preview(job, format, common)
            else:
                _write(job, out, format, common)

    command.__annotations__ |= {
        "config": members.annotate_config(module.Config),
        "request": Annotated[Request | None, Parameter(name="*")],
        "at": _option("Read the lake at this tag, snapshot number or ISO time (default: newest)."),
        "name": _option("Name of the dataset (default: the pipeline's name)."),
        "out": _option(
            "Folder to write. A dataset that this pipeline wrote there is replaced (default: "
            "./datasets/NAME/SNAPSHOT-HASH).",
            Path,
        ),
        "max_tokens": _option("Leave out rows with more than N tokens.", int),
        "tokenizer": _option(
            "Count tokens with this tokenizer.json or model folder (default: bytes / 4).", Path
        ),
        "dry_run": Annotated[
            bool, Parameter(help="Print counts and one rendered row; write nothing.", negative="")
        ],
        # Other pipelines refuse the option with a hint at one that has it.
        "explain": _option(
            "Show how exemplars for this task (its name or id) are chosen.",
            show=hasattr(module, "explain"),
        ),
        "format": Annotated[Format, Parameter(help="Format of the result.")],
        "common": Common,
    }
    return command


def _write(job: Job, out: Path | None, format: Format, common: Common) -> None:
    from pipelines.datasets.materialize import record_dataset, write_dataset

    started_at = datetime.now(UTC)
    with show_progress(quiet=common.quiet) as progress:
        dataset, folder = write_dataset(job, out, progress)
    recorded = record_dataset(dataset, folder, started_at)
    if not common.quiet:
        _report(dataset, [f"folder     {folder}"], echo.print_note)
        if recorded is None:
            echo.print_note("the lake already has a record of this dataset")
    if format == "table":
        echo.print_result(
            f"{job.name}: {dataset.rows} rows → {folder} (snapshot {job.lake.snapshot})"
        )
    else:
        _write_facts(dataset, format, path=str(folder))


def _preview(job: Job, format: Format, common: Common) -> None:
    from pipelines.datasets.materialize import preview_dataset

    with show_progress(quiet=common.quiet) as progress:
        dataset = preview_dataset(job, progress)
    if format != "table":
        _write_facts(dataset, format, example=dataset.example)
        return
    _report(dataset, [], echo.print_result)
    for column, turns in (dataset.example or {}).items():
        for turn in turns:
            echo.print_lines(f"\n--- first row, {column}, {turn['role']} ---")
            echo.print_foreign(turn["content"])
    echo.print_lines(
        f"\n{job.name}: {dataset.rows} rows, nothing written (snapshot {job.lake.snapshot})"
    )


def _report(dataset: Dataset, more: list[str], write: Callable[[str], None]) -> None:
    """Print the dataset and the rows that were left out, one fact per line."""
    job, dropped = dataset.job, list[str]()
    for reason, count in dataset.dropped.items():  # such as 3 tasks: test split
        what, colon, why = reason.partition(":")
        dropped.append(f"{count} {what}{'' if count == 1 else 's'}{colon}{why}")
    lines = [
        f"rows       {dataset.rows} {dataset.dataset_type} ({job.split} split)",
        f"tokens     {dataset.tokens} ({job.counter.words})",
        *(f"{name:<10} {value}" for name, value in dataset.notes.items()),
        *(f"left out   {line}" for line in dropped),
        f"snapshot   {job.lake.snapshot} of lake {job.lake.lake_id}",
        *more,
    ]
    for line in lines:
        write(line)


def _write_facts(dataset: Dataset, format: Format, **more: Any) -> None:
    """Print the result for a program."""
    from pipelines.datasets.card import collect_facts

    facts = collect_facts(dataset) | {
        "name": dataset.job.name,
        "splits": {dataset.job.split: dataset.rows},
        "dropped": dataset.dropped,
        "notes": dataset.notes,
    }
    if format == "json":
        echo.print_json(facts | more)
        return
    import pyarrow as pa

    from store.commandline import display

    flat = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in (facts | more).items()
    }
    display.write_rows(pa.Table.from_pylist([flat]), format)


def _option(help: str, kind: type = str, *, show: bool = True) -> Any:
    return Annotated[kind | None, Parameter(help=help, show_default=False, show=show)]


if __name__ == "__main__":
    main()


groups = [members.Group(run_app, "pipelines", _make_command)]
"""Commands with one subcommand per member."""
