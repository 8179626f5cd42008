"""Commands that make a lake and maintain it."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from store.cli.options import COMMON, ListFormat, locate_lake, print_rows
from store.commandline import echo
from store.commandline.members import Common, Format
from store.errors import FlywheelError

if TYPE_CHECKING:
    from store.lake.location import Location


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    for command in (init, check, compact, expire, backup, restore, move, rejected):
        app.command(command)


def init(*, common: Common = COMMON) -> None:
    """Create a lake, or add the tables and columns that catalog.yaml has and the lake lacks."""
    import store

    with store.writer(common.lake, author="store init") as writer:
        snapshot = writer.flush()
        echo.print_result(f"lake at {writer.location.url}, snapshot {snapshot}")


def check(
    *,
    full: Annotated[bool, Parameter(negative="")] = False,
    format: Format = "table",
    common: Common = COMMON,
) -> None:
    """Test every row and file of the lake: ids, keys, references, checks, counts, checksums.

    Compares every data file with the checksum recorded at its commit. Rows and files that an
    earlier check on this host found whole are not read again, unless a file's size, times or inode
    changed since then or another command found it damaged. A disk can damage a file without such a
    trace; to find that, use `--full`. Exits with 3 if a rule is broken. A published
    edition is read-only and has no such records; check the lake that it was published from, or the
    lake that `store pull` merges it into.

    Examples:
      store check
      store check --full

    Parameters
    ----------
    full
        Read everything again, whatever was checked before.
    format
        Format of the list of problems.
    """
    import pyarrow as pa

    from store.commandline import progress
    from store.upkeep import integrity

    with progress.show_progress(quiet=common.quiet) as show:
        report = integrity.inspect(locate_lake(common), show, full=full)
    if report.problems:
        print_rows(pa.Table.from_pylist([asdict(problem) for problem in report.problems]), format)
        echo.print_error(FlywheelError(f"rules broken: {len(report.problems)}"))
        sys.exit(3)
    if report.is_partial:
        echo.print_result(
            "clean: every row and file that is new or changed since the last check holds; "
            f"{report.unread} of {report.files} data files were not read again "
            "(`store check --full` reads all rows and files)"
        )
    else:
        echo.print_result("clean: every id, key, reference, check, count and file holds")


def compact(
    *,
    remove_orphans: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    common: Common = COMMON,
) -> None:
    """Write inlined rows to Parquet and merge small files. Every snapshot stays readable.

    Also deletes the files that earlier compactions and expiries have replaced, once they are so old
    that no running query can need them.

    Examples:
      store compact
      store compact --remove-orphans

    Parameters
    ----------
    remove_orphans
        First list data files that the catalog does not know, as failed commits leave them, and
        delete those that are more than two days old if you agree.
    yes
        Agree to that, as from a script.
    """
    from store.upkeep import maintenance

    if remove_orphans:
        _remove_orphans(locate_lake(common), agreed=yes)
    done = maintenance.compact(locate_lake(common))
    echo.print_result(
        f"files {done.files_before} → {done.files_after}, "
        f"{done.bytes_before / 1e6:.1f} MB → {done.bytes_after / 1e6:.1f} MB"
    )


def _remove_orphans(location: Location, *, agreed: bool) -> None:
    from store.upkeep import maintenance

    unknown = maintenance.list_leftovers(location)
    orphans = [one for one in unknown if one.is_removable]
    for one in orphans:
        echo.print_note(f"{one.written_at:%Y-%m-%d}  {one.bytes / 1e6:8.1f} MB  {one.path}")
    newer = sum(one.is_newer for one in unknown)
    if newer:
        echo.print_note(
            f"{newer} more files stay, which are newer than the last commit of rows: if an older "
            "copy of the catalog was put back, they are what is missing in it"
        )
    if not orphans:
        echo.print_note("no orphan to delete")
        return
    if not agreed and not sys.stdin.isatty():
        raise FlywheelError(
            f"{len(orphans)} files would be deleted, and there is no terminal to ask on",
            "Nothing was deleted. Add --yes to delete them.",
        )
    if not agreed and input(f"Delete these {len(orphans)} files? [y/N] ").lower() not in (
        "y",
        "yes",
    ):
        raise FlywheelError("nothing was deleted", "Answer y to delete the files.")
    removed = maintenance.remove_orphans(location, orphans)
    echo.print_result(f"deleted {removed} data files that the catalog does not know")


def expire(
    *,
    older_than_days: Annotated[float, Parameter(validator=Number(gte=0, lte=100_000))],
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    common: Common = COMMON,
) -> None:
    """Forget old snapshots, except the newest, tagged and cited ones.

    A snapshot is cited by a dataset, run or generation that was read from it. Rows of the newest
    snapshot always stay. Disk space is not freed at once: `store compact` and `store expire`
    delete files that no snapshot needs, once they are a day old.

    Examples:
      store expire --older-than-days 30 --dry-run
      store expire --older-than-days 30

    Parameters
    ----------
    older_than_days
        Forget snapshots that are more than N days old.
    dry_run
        Print what would expire; change nothing.
    """
    from store.upkeep import maintenance

    done = maintenance.expire(locate_lake(common), timedelta(days=older_than_days), dry_run=dry_run)
    for snapshot, reasons in sorted(done.spared.items()):
        echo.print_note(f"snapshot {snapshot} stays: {', '.join(reasons[:3])}")
    verb = "would expire" if dry_run else "expired"
    echo.print_result(f"{verb} {len(done.expired)} snapshots, kept {len(done.spared)}")
    if done.expired and not dry_run:
        hours = maintenance.REPLACED_AGE / timedelta(hours=1)
        echo.print_note(
            "No disk space is freed yet. A running query may still need the files of these "
            f"snapshots: run `store compact` in {hours:.0f} hours or later to delete them."
        )


def backup(target: Path, /, *, common: Common = COMMON) -> None:
    """Copy the lake to a folder that opens as a lake. A later backup copies only new files.

    Examples:
      store backup /mnt/backup/lake

    Parameters
    ----------
    target
        Folder of the copy.
    """
    from store.upkeep import maintenance

    copied, present = maintenance.backup(locate_lake(common), target)
    echo.print_result(f"{copied} files copied, {present} already there → {target}")


def restore(backup: Path, /, *, common: Common = COMMON) -> None:
    """Put a backup in the place of a lake whose catalog is missing or cannot be read.

    Data files that are still there stay. The damaged catalog is kept beside the new one. Rows that
    were committed after the backup are lost. A lake that can be opened is not replaced; a backup
    can also be read where it is, with --lake.

    Examples:
      store restore /mnt/backup/lake
      store restore /mnt/backup/lake --lake ./lake

    Parameters
    ----------
    backup
        Folder that `store backup` wrote.
    """
    from store.upkeep import maintenance

    location = locate_lake(common)
    copied, present = maintenance.restore(location, backup)
    echo.print_result(f"{copied} files copied, {present} already there → {location.url}")


def move(source: str, target: str, /, *, common: Common = COMMON) -> None:
    """Move a lake with its history from one folder or URL to another, and compare every row.

    Snapshots keep their numbers, so that tags, datasets and runs still cite the right ones. The old
    lake is left in place and cannot be opened any more; delete it when you have a backup of the
    new one. Run an interrupted move again to continue it. Stop the programs that write to the lake
    first; on a host whose spool still holds bundles for the old lake, run the command again to
    commit them to the new one.

    Examples:
      store move ./lake 'postgresql://alice@db/kernels?data=s3://kernels/lake'
      store move 'postgresql://alice@db/kernels' ./lake

    Parameters
    ----------
    source
        Folder or URL of the lake.
    target
        New folder, or URL of a schema and a place for data files that are empty.
    """
    from store.commandline import progress
    from store.lake.location import Location
    from store.upkeep.move import move as run

    old, new = Location.of(source), Location.of(target)
    with progress.show_progress(quiet=common.quiet) as show:
        done = run(old, new, show)
    if isinstance(done, int):
        echo.print_result(f"moved before; {done} spooled files were forwarded → {new.url}")
        return
    echo.print_result(
        f"{done.snapshots} snapshots, {done.rows} rows and {done.files} files are equal "
        f"({done.copied} files copied now) → {new.url}"
    )


def rejected(
    *,
    retry: list[str] | None = None,
    discard: list[str] | None = None,
    format: ListFormat = "table",
    common: Common = COMMON,
) -> None:
    """List the bundles that broke a rule when they were committed; store or delete them.

    The spool of this host keeps them. A bundle that refers to a row which the lake lacks can be
    stored once the row is there. Exits with 3 if a bundle is refused again.

    Examples:
      store rejected
      store rejected --retry all
      store rejected --discard 01764361020123456789-4242-000000-0000

    Parameters
    ----------
    retry
        Store the bundle with this name; all means every bundle. Repeat it for more bundles.
    discard
        Delete the bundle with this name, and its rows; all means every bundle.
    """
    import pyarrow as pa

    import store
    from store.errors import UnknownName
    from store.schema import catalog
    from store.writing import rejected as kept

    location, rules = locate_lake(common), catalog.load()
    location.require()
    bundles = kept.list_rejected(rules, location.spool)
    names = [bundle.name for bundle in bundles]
    given = retry or discard
    if given is None:
        rows = [asdict(bundle) for bundle in bundles]
        columns = [field.name for field in fields(kept.RejectedBundle)]
        print_rows(pa.table({name: [row[name] for row in rows] for name in columns}), format)
        return
    if retry and discard:
        raise FlywheelError("--retry and --discard cannot be combined", "Run one, then the other.")
    for name in given:
        if name not in ("all", *names):
            raise UnknownName.among("rejected bundle", name, names)
    chosen = names if "all" in given else list(dict.fromkeys(given))
    if discard:
        for name in chosen:
            kept.discard(location.spool, name)
        echo.print_result(f"{len(chosen)} bundles deleted")
        return
    with store.writer(common.lake, author="store rejected") as writer:
        places = [kept.put_back(rules, location.spool, name) for name in chosen]
        snapshot = writer.flush()
    refused = sum(place is None or kept.is_kept(place) for place in places)
    echo.print_result(f"{len(chosen) - refused} bundles stored → snapshot {snapshot}")
    if refused:
        echo.print_error(
            FlywheelError(f"bundles refused again: {refused}", "`store rejected` says why.")
        )
        sys.exit(3)
