"""`store publish` and `store pull`, as the command line has them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.members import Common, Format
from store.hub import edition_writer

if TYPE_CHECKING:
    from store.hub.publish import Publication
    from store.hub.pull import PullSummary

_DEFAULT = Common()
_CHANGES = {"new": "+", "changed": "~", "gone": "-", "same": "="}


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
    private: bool = False,
    dry_run: bool = False,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Publish a snapshot to the Hugging Face Hub: Parquet, a card, and a lake that opens.

    One commit and one tag, or nothing. The token is the client's own (HF_TOKEN, `hf auth login`).

    Examples:
      store publish ORG/NAME --tag v1 --dry-run
      store publish ORG/NAME --tag v1 --tables all --dataset contrastive-batch@v1

    Parameters
    ----------
    repo
        ORG/NAME of the dataset on the Hub; made where there is none.
    tag
        Name of the edition, there and in the lake. A tag that the lake has says which snapshot.
    tables
        Comma-separated tables, or all; what they refer to comes along. Default: all without
        --dataset, else those that the datasets refer to.
    dataset
        NAME or NAME@TAG of a dataset that a pipeline made; may stand several times.
    at
        Tag, snapshot number or ISO time to publish (default: newest).
    license
        SPDX licence that you grant for texts that this lake's own runs wrote and that state none.
    quarantined
        mark: a column says which kernels are in quarantine. leave-out: they stay behind, with all
        rows that refer to them.
    unlicensed
        stop: a text without a licence that allows it stops everything. leave-out: it stays behind.
    private
        Make the repository private; refused where it is public.
    dry_run
        Show files, sizes, the card, and what differs from what is there; send nothing.
    format
        table or json.
    """
    from store.hub.edition import Options
    from store.hub.publish import publish as run

    whole = tables is None or tables == "all"
    named = None if tables is None else tuple(_all() if whole else tables.split(","))
    options = Options(
        tag=tag,
        tables=named,
        datasets=tuple(dataset or ()),
        license=license,
        quarantined=quarantined,
        unlicensed=unlicensed,
    )
    done = run(
        common.lake, repo, options, at=at, private=private, dry_run=dry_run, progress=_progress
    )
    if format == "json":
        facts = asdict(done) | {"sent_bytes": done.sent_bytes, "all_bytes": done.all_bytes}
        echo.print_json(facts)
        return
    for notice in done.notices:
        echo.print_note(f"note: {notice}")
    if dry_run:
        _show(done)
    echo.print_result(_line(done, dry_run))


def pull(
    repo: str,
    /,
    *,
    max_file_gb: float = 1.0,
    max_total_gb: float = 16.0,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Merge a published lake into this one; nothing here is overwritten. Exit 3 on conflicts.

    Rows are known by content: what is here already is skipped, and pulling again adds nothing. A
    row whose key is here with other content is listed and stays out; all others are merged.
    Pulled decisions and verdicts never override those of this lake: they can add suspicion, and
    only a decision made here releases a kernel.

    Examples:
      store pull ORG/NAME
      store pull ORG/NAME@v1

    Parameters
    ----------
    repo
        ORG/NAME, with @ and a tag, branch or commit where it is not to be main.
    max_file_gb
        Refuse a Parquet file that decodes to more than this many GB.
    max_total_gb
        Refuse files that decode to more than this many GB together.
    format
        table or json.
    """
    from store.foreign.parquet import ParquetLimits
    from store.hub.pull import pull as run

    limits = ParquetLimits(file_gb=max_file_gb, total_gb=max_total_gb)
    done = run(common.lake, repo, limits=limits, progress=_progress)
    if format == "json":
        echo.print_json(asdict(done))
    else:
        _tell(done)
    if done.conflicts:
        sys.exit(3)


def _all() -> list[str]:
    from store.schema import catalog

    return [name for name in catalog.load().tables if name not in edition_writer.LOCAL]


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        echo.print_note(f"{text} …")


def _show(done: Publication) -> None:
    """Print the card, then every file with its size and what would become of it."""
    echo.print_foreign(done.card)
    echo.print_lines("\nfiles (+ new, ~ changed, - gone, = there already)")
    for one in done.changes:
        echo.print_result(f"{_CHANGES[one.what]} {one.bytes:>12,}  {quote_name(one.path)}")


def _line(done: Publication, dry_run: bool) -> str:
    files = sum(one.what in ("new", "changed") for one in done.changes)
    rows = sum(done.tables.values())
    what = f"snapshot {done.snapshot} as {done.repo}@{done.tag}: {rows} rows"
    if not done.fresh:
        return f"{what}, already there at {done.revision}"
    sizes = f"{files} files, {done.sent_bytes / 1e6:.2f} of {done.all_bytes / 1e6:.2f} MB"
    return f"would publish {what}; {sizes}" if dry_run else f"{what}; {sizes} → {done.revision}"


def _tell(done: PullSummary) -> None:
    from store.commandline.display import cell

    for notice in done.notices:
        echo.print_note(f"note: {notice}")
    for one in done.conflicts:
        echo.print_result(f"conflict {one.table}: {one.count} rows differ in {one.columns}")
        for example in one.examples:
            echo.print_result(f"  {cell(example)}")
    added = ", ".join(f"{table} +{count}" for table, count in done.rows.items())
    echo.print_result(
        f"{added or 'nothing new'} ({done.there} rows there already) from {done.repo}@"
        f"{done.revision[:12]} → snapshot {done.snapshot}"
    )
