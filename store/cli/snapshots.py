"""Commands about snapshots: list them, name them, compare two of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, TypeAlias

from cyclopts import App, Parameter

from store.cli.options import COMMON, ListFormat, locate_lake, open_lake, print_rows
from store.commandline import echo
from store.commandline.help import CommandApp
from store.commandline.members import Common, Count, Format
from store.commandline.python_rows import list_rows
from store.errors import FlywheelError

NamedAt: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
tag_app = CommandApp(name="tag", help="Name snapshots: add, list and remove tags.")


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    tag_app.command(tag_add, name="add")
    tag_app.command(tag_list, name="list")
    tag_app.command(tag_rm, name="rm")
    app.command(log)
    app.command(diff)
    app.command(tag_app)


def log(*, limit: Count = 20, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List snapshots with their time, author, message and tags, newest first.

    Examples:
      store log --limit 5
      store log --format json

    Parameters
    ----------
    limit
        List at most N snapshots.
    """
    from store.upkeep import history

    with open_lake(common) as lake:
        print_rows(history.list_snapshots(lake).slice(0, limit), format)


def tag_add(
    name: str, /, at: NamedAt = None, *, note: str | None = None, common: Common = COMMON
) -> None:
    """Name a snapshot. Commands take the name for --at, and `store expire` keeps the snapshot.

    Examples:
      store tag add v1
      store tag add before-import 3 --note "state before the import"

    Parameters
    ----------
    name
        New tag: a letter, then letters, digits, ".", "_" and "-", at most 100 characters. A tag
        that exists moves to the snapshot.
    at
        Snapshot number, tag or ISO time to name (default: newest).
    note
        Why the snapshot has a name.
    """
    import store
    from store.upkeep import history

    locate_lake(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        with writer.reader() as lake:
            tagged = {row["name"]: row["snapshot"] for row in history.list_tags(lake).to_pylist()}
        snapshot = history.add_tag(writer, name, at, note)
        before = tagged.get(name, snapshot)
        moved = f", moved from snapshot {before}" if before != snapshot else ""
        echo.print_result(f"{name} → snapshot {snapshot}{moved}")


def tag_list(*, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List the tags and their snapshots."""
    from store.upkeep import history

    with open_lake(common) as lake:
        print_rows(history.list_tags(lake), format)


def tag_rm(name: str, /, *, note: str | None = None, common: Common = COMMON) -> None:
    """Remove a tag. Its snapshot stays until `store expire`.

    Examples:
      store tag rm v1 --note "superseded by v2"

    Parameters
    ----------
    name
        Tag to remove.
    note
        Why the tag is removed.
    """
    import store
    from store.upkeep import history

    locate_lake(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        history.remove_tag(writer, name, note)
        echo.print_result(f"{name} removed")


def diff(
    before: str,
    after: str | None = None,
    /,
    *,
    table: str | None = None,
    format: Format = "table",
    common: Common = COMMON,
) -> None:
    """Compare two snapshots: rows added, and verdicts and best kernels that changed.

    Examples:
      store diff v1
      store diff v1 v2 --format json
      store diff 3 7 --table evaluations --format csv

    Parameters
    ----------
    before
        Tag, number or ISO time of the older snapshot.
    after
        Tag, number or ISO time of the newer snapshot (default: newest).
    table
        List the rows added to this table instead.
    format
        Format of the result; csv needs --table.
    """
    import pyarrow as pa

    from store.commandline import display
    from store.upkeep import history

    with open_lake(common, before) as old, open_lake(common, after) as new:
        if table is not None:
            print_rows(history.list_added_rows(old, new, table), format)
            return
        difference = history.compare(old, new)
    if format == "csv":
        raise FlywheelError(
            "a difference between snapshots is more than one CSV", "Add --table T, or use json."
        )
    if format == "json":
        whole = asdict(difference) | {
            "verdicts": list_rows(difference.verdicts),
            "best_kernels": list_rows(difference.best_kernels),
        }
        echo.print_json(whole)
        return
    counts = [{"table": name, "rows added": n} for name, n in difference.rows_added.items()]
    echo.print_result(f"snapshot {difference.before} → {difference.after}")
    for title, rows in (
        ("Rows added", pa.Table.from_pylist(counts)),
        ("Verdicts changed", difference.verdicts),
        ("Best kernels changed", difference.best_kernels),
    ):
        if rows.num_rows:
            display.print_table(rows, title=f"{title} ({rows.num_rows})")
        else:
            echo.print_result(f"{title}: none")
