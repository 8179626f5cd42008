"""The `store` command: make, fill, ask, name, compare and look after a lake."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import App, Parameter

from store import __version__
from store.cli.hub import publish, pull
from store.cli.report import report
from store.commandline import echo, members
from store.commandline.members import Common, Format, Member
from store.errors import FlywheelError
from store.lake import sql_files
from store.lake.exclusions import Inclusions, describe_left_out
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    import pyarrow as pa

    import store
    from store.lake.location import Location

Form: TypeAlias = Literal["table", "json", "csv", "parquet"]
Include: TypeAlias = Annotated[Inclusions, Parameter(name="*", negative="")]
Limits: TypeAlias = Annotated[QueryLimits, Parameter(name="*")]
At: TypeAlias = Annotated[str | None, Parameter(show_default=False)]

_DEFAULT = Common()
_LIMITS = QueryLimits()
_INCLUDING = Inclusions()

app = App(
    name="store",
    help="""Kernel history in a lake: versioned Parquet tables that you ask with SQL.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 refused with a reason,
2 usage, 3 rows broke a rule.

Examples:
  store import starter
  store query "FROM leaderboard"
  store query --at v1 "SELECT count(*) FROM kernels"
""",
    help_format="plaintext",
    version_flags=["--version"],
    version=__version__,
)
tag_app = App(name="tag", help="Name snapshots: add, list, rm.", help_format="plaintext")
import_app = App(
    name="import",
    help="Bring in kernels, verdicts and published figures from a source.",
    help_format="plaintext",
)
export_app = App(
    name="export",
    help="Write kernels or tables in formats of other tools; private columns stay out.",
    help_format="plaintext",
)
app.command(tag_app)
app.command(import_app)
app.command(export_app)
app.command(report)
app.command(publish)
app.command(pull)


def main() -> None:
    """Run the `store` command."""
    members.run(
        app,
        members.Group(import_app, "store.importers", _importer),
        members.Group(export_app, "store.exporters", _exporter),
    )


@app.command
def init(*, common: Common = _DEFAULT) -> None:
    """Make a lake, or migrate one to catalog.yaml (new tables and columns only)."""
    import store

    with store.writer(common.lake, author="store init") as writer:
        snapshot = writer.flush()
        echo.print_result(f"lake at {writer.location.root}, snapshot {snapshot}")


@app.command
def query(
    sql: str | None = None,
    /,
    *,
    file: Path | None = None,
    at: At = None,
    format: Form = "table",
    out: Path | None = None,
    including: Include = _INCLUDING,
    limits: Limits = _LIMITS,
    common: Common = _DEFAULT,
) -> None:
    """Ask one SELECT-like question; nothing in it can change the lake or touch a file.

    A process of its own answers, and is ended when it exceeds a limit or on Ctrl-C.

    Examples:
      store query "FROM best_kernels LIMIT 5"
      store query --format csv --out speedups.csv "FROM speedups"
      store query --file question.sql

    Parameters
    ----------
    sql
        One SELECT, FROM, WITH, VALUES, DESCRIBE or SUMMARIZE; without it, standard input is read.
    file
        File that holds the question.
    at
        Tag, snapshot number or ISO time to read the lake at (default: newest).
    format
        table (cut to fit a person), json, csv or parquet.
    out
        File to write to instead of stdout.
    """
    from store.lake.query_process import QueryProcess

    question = _question(sql, file)
    with QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        from store.commandline import display  # while the process starts

        answer = lake.ask(question)
        display.write(answer.rows, format, out)
        if answer.cut:
            echo.print_note(f"cut after {answer.rows.num_rows} rows; --max-rows 0 gives all")
        told = describe_left_out(answer.left_out)
        if told and not common.quiet:
            echo.print_note(f"left out: {told}")


@app.command
def shell(
    *,
    at: At = None,
    including: Include = _INCLUDING,
    limits: Limits = _LIMITS,
    common: Common = _DEFAULT,
) -> None:
    """Ask questions one after another at a prompt; the lake stays pinned to one snapshot.

    Parameters
    ----------
    at
        Tag, snapshot number or ISO time to read the lake at (default: newest).
    """
    from store.cli.shell import interact
    from store.lake.query_process import QueryProcess

    with QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        interact(lake)


@app.command
def tables(*, at: At = None, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List the tables with their number of rows.

    Parameters
    ----------
    at
        Tag, snapshot number or ISO time (default: newest).
    format
        table, json or csv.
    """
    with _open(common, at) as lake:
        parts = [
            f"SELECT '{t.name}' AS \"table\", count(*) AS rows, '{_sql(t.about)}' AS about "
            f"FROM {t.name}"
            for t in lake.catalog.tables.values()
        ]
        _write(lake.run(" UNION ALL ".join(parts)).arrow(), format)


@app.command
def describe(table: str, /, *, format: Format = "table", common: Common = _DEFAULT) -> None:
    """Explain the columns of a table or view.

    Parameters
    ----------
    table
        Name of a table or a view.
    format
        table, json or csv.
    """
    import pyarrow as pa

    from store.cli import reference
    from store.schema import catalog

    known = catalog.load()
    if table in sql_files.list_views():
        with _open(common, None) as lake:
            _write(lake.run(f"DESCRIBE {table}").arrow().select([0, 1]), format)
        return
    _write(pa.Table.from_pylist(reference.columns(known.table(table))), format)


@app.command
def views(*, sql: str | None = None, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List the views, or print the SQL of one.

    Parameters
    ----------
    sql
        Name of the view whose SQL is printed.
    format
        table, json or csv.
    """
    import pyarrow as pa

    if sql is not None:
        echo.print_lines(sql_files.read_view(sql))
        return
    rows = [
        {"view": name, "about": sql_files.read_description(sql_files.read_view(name))}
        for name in sql_files.list_views()
    ]
    _write(pa.Table.from_pylist(rows), format)


@app.command
def log(*, limit: int = 20, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List snapshots, newest first: when, by whom, why, and the tags that name them.

    Parameters
    ----------
    limit
        Number of snapshots.
    format
        table, json or csv.
    """
    from store.upkeep import history

    with _open(common, None) as lake:
        _write(history.list_snapshots(lake).slice(0, limit), format)


@tag_app.command(name="add")
def tag_add(
    name: str, /, *, at: At = None, note: str | None = None, common: Common = _DEFAULT
) -> None:
    """Name a snapshot, so that it is kept and can be asked for by name.

    Parameters
    ----------
    name
        Begins with a letter. A name in use moves.
    at
        Snapshot to name (default: newest).
    note
        Why.
    """
    import store
    from store.upkeep import history

    _location(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        snapshot = history.add_tag(writer, name, at, note)
        echo.print_result(f"{name} → snapshot {snapshot}")


@tag_app.command(name="list")
def tag_list(*, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List names in use.

    Parameters
    ----------
    format
        table, json or csv.
    """
    from store.upkeep import history

    with _open(common, None) as lake:
        _write(history.list_tags(lake), format)


@tag_app.command(name="rm")
def tag_rm(name: str, /, *, note: str | None = None, common: Common = _DEFAULT) -> None:
    """Take a name away; the snapshot stays until `store expire`.

    Parameters
    ----------
    name
        Name to take away.
    note
        Why.
    """
    import store
    from store.upkeep import history

    _location(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        history.remove_tag(writer, name, note)
        echo.print_result(f"{name} removed")


@app.command
def diff(
    before: str,
    after: str | None = None,
    /,
    *,
    table: str | None = None,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Compare two snapshots: rows added, verdicts and best kernels that changed.

    Parameters
    ----------
    before
        Tag, number or ISO time of the older snapshot.
    after
        The newer one (default: newest).
    table
        List the rows added to this table instead.
    format
        table or json; csv with --table only.
    """
    from store.commandline import display
    from store.upkeep import history

    with _open(common, before) as old, _open(common, after) as new:
        if table is not None:
            _write(history.list_added_rows(old, new, table), format)
            return
        found = history.compare(old, new)
    if format == "csv":
        raise FlywheelError("a whole difference is not one CSV", "Add --table T, or use json.")
    if format == "json":
        whole = asdict(found) | {
            "verdicts": found.verdicts.to_pylist(),
            "best_kernels": found.best_kernels.to_pylist(),
        }
        echo.print_json(whole)
        return
    import pyarrow as pa

    counts = [{"table": name, "rows added": n} for name, n in found.rows_added.items()]
    echo.print_result(f"snapshot {found.before} → {found.after}")
    for title, rows in (
        ("Rows added", pa.Table.from_pylist(counts)),
        ("Verdicts changed", found.verdicts),
        ("Best kernels changed", found.best_kernels),
    ):
        if rows.num_rows:
            display.table(rows, title=f"{title} ({rows.num_rows})")
        else:
            echo.print_result(f"{title}: none")


@app.command
def show(
    name: str,
    /,
    *,
    lineage: Annotated[bool, Parameter(negative="")] = False,
    at: At = None,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Show all that is known of a kernel, or of a task and its kernels.

    Of a kernel: code, evaluations, timings, claims, lineage, findings. Of a task: what was claimed
    on which GPU, what was judged and measured, and what detectors saw.

    Parameters
    ----------
    name
        Id of a kernel or the first characters of it; or a task's name, such as level1/9 or L1-9.
    lineage
        Only what a kernel was made from: the exemplars of its prompts and its parents with the
        scores that were shown, theirs, and so on.
    at
        Tag, snapshot number or ISO time (default: newest).
    format
        table or json.
    """
    from store.cli import show

    with _open(common, at) as lake:
        show.write(show.ancestry(lake, name) if lineage else show.page(lake, name), format)


@app.command
def headline(
    name: str = "cuda-l1", /, *, at: At = None, format: Format = "table", common: Common = _DEFAULT
) -> None:
    """Tell the story of a published figure, each step with the SQL that computes it.

    Parameters
    ----------
    name
        Which headline.
    at
        Tag, snapshot number or ISO time (default: newest).
    format
        table or json.
    """
    from store.headlines import story

    with _open(common, at) as lake:
        story.write(story.story(lake, name), format)


@app.command
def compact(*, common: Common = _DEFAULT) -> None:
    """Write inlined rows to Parquet and merge small files; every snapshot stays readable."""
    from store.upkeep import maintenance

    done = maintenance.compact(_location(common))
    echo.print_result(
        f"files {done.files_before} → {done.files_after}, "
        f"{done.bytes_before / 1e6:.1f} MB → {done.bytes_after / 1e6:.1f} MB"
    )


@app.command
def expire(*, older_than_days: float, dry_run: bool = False, common: Common = _DEFAULT) -> None:
    """Forget old snapshots, except those tagged or cited by a dataset, run or generation.

    Parameters
    ----------
    older_than_days
        Age in days from which a snapshot may go.
    dry_run
        Say what would go, and change nothing.
    """
    from store.upkeep import maintenance

    done = maintenance.expire(_location(common), timedelta(days=older_than_days), dry_run=dry_run)
    for snapshot, reasons in sorted(done.spared.items()):
        echo.print_note(f"spared {snapshot}: {', '.join(reasons[:3])}")
    verb = "would expire" if dry_run else "expired"
    echo.print_result(f"{verb} {len(done.expired)} snapshots, spared {len(done.spared)}")


@app.command
def check(*, format: Format = "table", common: Common = _DEFAULT) -> None:
    """Test every rule on every row: ids, keys, references, checks, counts, files.

    Every data file is compared with the checksum that was recorded when it was committed. Exits
    with 3 on problems.

    Parameters
    ----------
    format
        table, json or csv.
    """
    import pyarrow as pa

    from store.commandline import progress
    from store.upkeep import integrity

    with progress.shown(quiet=common.quiet) as show:
        problems = integrity.check(_location(common), show)
    if problems:
        _write(pa.Table.from_pylist([asdict(problem) for problem in problems]), format)
        echo.print_error(FlywheelError(f"{len(problems)} rules broken"))
        sys.exit(3)
    echo.print_result("clean: every id, key, reference, check, count and file holds")


@app.command
def backup(target: Path, /, *, common: Common = _DEFAULT) -> None:
    """Copy the lake to a folder that opens as a lake; a later backup copies what is new.

    Parameters
    ----------
    target
        Folder of the copy.
    """
    from store.upkeep import maintenance

    copied, kept = maintenance.backup(_location(common), target)
    echo.print_result(f"{copied} files copied, {kept} already there → {target}")


def _importer(one: Member) -> Callable[..., None]:
    """Make the function behind `store import NAME`."""
    module = one.load()

    def command(
        path: Path | None = None,
        /,
        *,
        config: Any = None,
        tag: str | None = None,
        max_file_gb: float = 1.0,
        max_total_gb: float = 16.0,
        common: Common = _DEFAULT,
    ) -> None:
        from store.foreign import parquet
        from store.importers.reading import run as importing

        limits = parquet.ParquetLimits(file_gb=max_file_gb, total_gb=max_total_gb)
        with parquet.use_limits(limits):
            importing.command(one, module, path, config or module.Config(), tag, common)

    command.__annotations__ |= {
        "path": Annotated[Path | None, Parameter(help="File or folder to read.")],
        "config": Annotated[module.Config | None, Parameter(name="*")],
        "tag": Annotated[str | None, Parameter(help="Name the snapshot that the import ends in.")],
        "max_file_gb": Annotated[
            float, Parameter(help="Refuse a Parquet file that decodes to more than this many GB.")
        ],
        "max_total_gb": Annotated[
            float, Parameter(help="Refuse Parquet files that decode to more GB together.")
        ],
        "common": Common,
    }
    return command


def _exporter(one: Member) -> Callable[..., None]:
    """Make the function behind `store export NAME`."""
    module = one.load()

    def command(
        folder: Path,
        /,
        *,
        config: Any = None,
        at: At = None,
        including: Include = _INCLUDING,
        common: Common = _DEFAULT,
    ) -> None:
        import store
        from store.exporters.writing import run as exporting

        with store.open(common.lake, at, include=including.views()) as lake:
            counts = exporting.export(lake, module, folder, config or module.Config())
            echo.print_result(exporting.line(one, counts, folder, lake.snapshot))

    command.__annotations__ |= {
        "folder": Annotated[Path, Parameter(help="New folder to write.")],
        "config": Annotated[module.Config | None, Parameter(name="*")],
        "at": At,
        "including": Include,
        "common": Common,
    }
    return command


def _question(sql: str | None, file: Path | None) -> str:
    if sql is not None:
        return sql
    if file is not None:
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FlywheelError(f"cannot read {file}: {error}") from error
    if sys.stdin.isatty():
        raise FlywheelError("no question", 'Such as: store query "FROM leaderboard"')
    return sys.stdin.read()


def _open(common: Common, at: str | None) -> store.Lake:
    import store

    return store.open(common.lake, at)


def _location(common: Common) -> Location:
    from store.lake.location import Location

    return Location.of(common.lake)


def _write(rows: pa.Table, form: str) -> None:
    from store.commandline import display

    display.write(rows, form)


def _sql(text: str) -> str:
    return text.replace("'", "''")


if __name__ == "__main__":
    main()
