"""`store publish` and `store pull`."""

from __future__ import annotations

import html
import sys
from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import App, Parameter

from store.cli.options import COMMON
from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.members import Common, PageFormat
from store.errors import FlywheelError

_CHANGES = {"new": "+", "changed": "~", "gone": "-", "same": "="}


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    app.command(publish)
    app.command(pull)


def publish(
    repo: str,
    /,
    *,
    tag: str,
    tables: str | None = None,
    dataset: list[str] | None = None,
    at: str | None = None,
    license: str | None = None,
    quarantined: Literal["mark", "leave-out"] = "mark",
    unlicensed: Literal["stop", "leave-out"] = "stop",
    private: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    card: Annotated[bool, Parameter(negative="")] = False,
    format: PageFormat = "table",
    common: Common = COMMON,
) -> None:
    """Publish a snapshot to the Hugging Face Hub: Parquet files, a dataset card, and a lake.

    Makes one commit and one tag, or nothing. The Hub client supplies the token (HF_TOKEN or
    `hf auth login`).

    Examples:
      store publish ORG/NAME --tag v1 --dry-run
      store publish ORG/NAME --tag v1 --dry-run --card > card.md
      store publish ORG/NAME --tag v1 --tables all --dataset sft@v1

    Parameters
    ----------
    repo
        ORG/NAME of the dataset on the Hub. It is created if it does not exist.
    tag
        Name of the edition, on the Hub and in the lake. If the lake has this tag, its snapshot is
        published.
    tables
        Comma-separated tables, or all. Tables that they refer to are included. (Default: all; with
        --dataset, the tables that the datasets refer to.)
    dataset
        NAME or NAME@TAG of a dataset that a pipeline has written. Repeat it for more datasets.
    at
        Publish this tag, snapshot number or ISO time (default: newest).
    license
        SPDX license for texts that this lake's own runs produced and that do not state a license.
    quarantined
        mark: include kernels in quarantine, and mark them in a column. leave-out: leave them out,
        with all rows that refer to them.
    unlicensed
        stop: refuse to publish if the license of a text does not allow it. leave-out: leave these
        texts out.
    private
        Make the repository private. Refused if it exists and is public.
    dry_run
        Print the files with their sizes and changes and a summary of the card; send nothing.
    card
        With --dry-run, print only the whole card.
    format
        Format of the result.
    """
    from store.hub.edition import Options
    from store.hub.edition_writer import LOCAL
    from store.hub.publish import publish as run
    from store.schema import catalog

    named = None if tables is None else tuple(tables.split(","))
    if tables == "all":
        named = tuple(name for name in catalog.load().tables if name not in LOCAL)
    options = Options(
        tag=tag,
        tables=named,
        datasets=tuple(dataset or ()),
        license=license,
        quarantined=quarantined,
        unlicensed=unlicensed,
    )
    if card and not dry_run:
        raise FlywheelError("--card prints what would be published", "Add --dry-run.")
    done = run(
        common.lake, repo, options, at=at, private=private, dry_run=dry_run, progress=_print_step
    )
    if format == "json":
        facts = asdict(done) | {"sent_bytes": done.sent_bytes, "all_bytes": done.all_bytes}
        echo.print_json(facts)
        return
    for notice in done.notices:
        echo.print_note(f"note: {notice}")
    if card:
        echo.print_lines(done.card)
        return
    if dry_run:
        echo.print_lines("files (+ new, ~ changed, - gone, = there already)")
        for change in done.changes:
            path = quote_name(change.path)
            echo.print_result(f"{_CHANGES[change.what]} {change.bytes:>12,}  {path}")
        echo.print_lines(f"card: README.md, {len(done.card.splitlines())} lines; --card prints it")
        _, _, body = done.card.partition("\n---\n")
        for line in body.splitlines():
            if line.startswith("#"):
                echo.print_foreign(html.unescape(line.lstrip("#").strip()))
    files = sum(change.what in ("new", "changed") for change in done.changes)
    rows = sum(done.tables.values())
    line = f"snapshot {done.snapshot} as {done.repo}@{done.tag}: {rows} rows"
    sizes = f"{files} files, {done.sent_bytes / 1e6:.2f} of {done.all_bytes / 1e6:.2f} MB"
    if not done.fresh:
        line += f", already there at {done.revision}"
    elif dry_run:
        line = f"would publish {line}; {sizes}"
    else:
        line += f"; {sizes} → {done.revision}"
    echo.print_result(line)


def pull(
    repo: str,
    /,
    *,
    max_file_gb: float = 1.0,
    max_total_gb: float = 16.0,
    format: PageFormat = "table",
    common: Common = COMMON,
) -> None:
    """Merge a published lake into this one. Nothing here is overwritten. Exits 3 on conflicts.

    Rows are identified by their content: rows that are here already are skipped, so pulling twice
    adds nothing. A row with a key that exists here and other content is a conflict: it is listed
    and left out, and all other rows are merged. Pulled decisions and verdicts never override those
    of this lake: they can add suspicion, and only a decision made here releases a kernel.

    Examples:
      store pull ORG/NAME
      store pull ORG/NAME@v1

    Parameters
    ----------
    repo
        ORG/NAME, or ORG/NAME@REVISION with a tag, branch or commit (default: main).
    max_file_gb
        Refuse a Parquet file that decodes to more than N GB.
    max_total_gb
        Refuse files that decode to more than N GB together.
    format
        Format of the result.
    """
    from store.commandline.display import format_cell
    from store.foreign.parquet import ParquetLimits
    from store.hub.pull import pull as run

    limits = ParquetLimits(file_gb=max_file_gb, total_gb=max_total_gb)
    done = run(common.lake, repo, limits=limits, progress=_print_step)
    if format == "json":
        echo.print_json(asdict(done))
    else:
        for notice in done.notices:
            echo.print_note(f"note: {notice}")
        for conflict in done.conflicts:
            echo.print_result(
                f"conflict {conflict.table}: {conflict.count} rows differ in {conflict.columns}"
            )
            for example in conflict.examples:
                echo.print_result(f"  {format_cell(example)}")
        added = ", ".join(f"{table} +{count}" for table, count in done.rows.items())
        echo.print_result(
            f"{added or 'nothing new'} ({done.there} rows there already) from {done.repo}@"
            f"{done.revision[:12]} → snapshot {done.snapshot}"
        )
    if done.conflicts:
        sys.exit(3)


def _print_step(text: str) -> None:
    if sys.stderr.isatty():
        echo.print_note(f"{text} …")
