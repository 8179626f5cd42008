"""The `store` command: create, fill, query, name, compare and maintain a lake."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

import store
from store import faults
from store.bounds import PARQUET_LIMITS, ParquetLimits, QueryLimits
from store.commandline import display, echo, members
from store.commandline.display import list_rows
from store.commandline.escape import quote_name
from store.commandline.members import (
    CommandApp,
    Common,
    Count,
    Format,
    Group,
    ListFormat,
    Member,
    ResultFormat,
    annotate_config,
    make_room_app,
)
from store.commandline.outputs import write_file, write_folder
from store.comparison.compare import KEY_COLUMNS, RESOLUTION, By, parse_share
from store.comparison.compare import compare as compare_samples
from store.dossier import pages
from store.errors import FIRST_ROWS, FlywheelError, UnknownName, UsageError
from store.lake import sql_files
from store.lake.exclusions import Inclusions, describe_left_out
from store.lake.sql_files import find_key_columns, read_sql
from store.mcp.serving import Address, AgentLimits, build_server
from store.mcp.serving import serve as serve_tools
from store.schema import catalog
from store.schema.clocks import Clock
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    from store.lake.location import Location

At: TypeAlias = Annotated[
    str | None,
    Parameter(
        show_default=False,
        help="Read the lake at this tag, snapshot number or ISO time (default: newest).",
    ),
]
Include: TypeAlias = Annotated[Inclusions, Parameter(name="*", negative="")]
Limits: TypeAlias = Annotated[QueryLimits, Parameter(name="*")]
QueryFormat: TypeAlias = Literal["table", "json", "csv", "parquet"]

Resolution: TypeAlias = Annotated[float, Parameter(converter=parse_share)]
NamedAt: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
COMMON = Common()
INCLUDING = Inclusions()
LIMITS = QueryLimits()
_ADDRESS = Address()
_AGENT_LIMITS = AgentLimits()
_TOLD_ONCE = ("device", "clock", "precision")
"""Columns of `store best` that a note has instead, where all rows agree."""
_CHANGES = {"new": "+", "changed": "~", "gone": "-", "same": "="}

app = make_room_app(
    "store",
    "Kernel history in a lake: versioned Parquet tables that you query with SQL.",
    [
        "store import starter",
        'store query "FROM leaderboard"',
        'store query --at v1 "SELECT count(*) FROM kernels"',
        "store --lake ./other log",
        "store show diag_matmul",
    ],
)


def open_lake(
    common: Common, at: str | None = None, including: Inclusions = INCLUDING
) -> store.Lake:
    """Open the lake that the options name."""
    return store.open(common.lake, at, include=including.views())


def locate_lake(common: Common) -> Location:
    """Return where the lake is that the options name."""
    from store.lake.location import Location

    return Location.of(common.lake)


@app.command
def query(
    sql: str | None = None,
    /,
    *,
    file: Path | None = None,
    at: At = None,
    format: QueryFormat = "table",
    out: Path | None = None,
    including: Include = INCLUDING,
    limits: Limits = LIMITS,
    common: Common = COMMON,
) -> None:
    """Run one SELECT statement. It cannot change the lake or read other files.

    The statement runs in a process of its own, which ends when it exceeds a limit or on Ctrl-C.

    Examples:
      store query "FROM best_kernels LIMIT 5"
      store query --at v1 "SELECT count(*) FROM kernels"
      store query --format csv --out speedups.csv "FROM speedups"
      store query --file question.sql

    Parameters
    ----------
    sql
        One SELECT, FROM, WITH, VALUES, PIVOT, UNPIVOT, DESCRIBE, SUMMARIZE or EXPLAIN (default:
        read standard input).
    file
        Read the statement from this file.
    format
        Format of the result. A table on a terminal is cut to its width, where the key columns of
        views come first; the other formats are complete. JSON has null for NaN and infinite
        numbers.
    out
        Write the result to this file instead of stdout. A result that this command wrote there
        before is replaced; other files are not.
    """
    from store.guard.query_process import QueryProcess

    if sql is None and file is not None:
        try:
            sql = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise faults.explain(error) or FlywheelError(f"cannot read {file}: {error}") from error
    if sql is None and sys.stdin.isatty():
        raise FlywheelError("no SQL was given", 'For example: store query "FROM leaderboard"')
    statement = sys.stdin.read() if sql is None else sql
    if 0 < len(statement) < 256 and Path(statement).exists():
        raise FlywheelError(
            f"{statement} is a path, and no SQL",
            "Name a file of SQL with --file. `store import detect PATH` names the importer for"
            " other files.",
        )
    place = nullcontext() if out is None else write_file(out, "store query")
    with place as target, QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        answer = lake.ask(statement)
        keys = find_key_columns(statement, answer.rows.column_names)
        display.write_rows(answer.rows, format, target, keys)
        if answer.cut:
            count = answer.rows.num_rows
            option = "--max-rows" if count == limits.max_rows else "--max-chars"
            echo.print_note(f"cut after {count} rows; {option} 0 gives all")
        left_out = describe_left_out(answer.left_out)
        if left_out and not common.quiet:
            echo.print_note(f"left out: {left_out}")
        if (
            not answer.rows.num_rows
            and not common.quiet
            and not lake.ask("FROM kernels LIMIT 1").rows.num_rows
        ):
            echo.print_note(f"The lake has no kernels yet. {FIRST_ROWS}")
        # Rows of stage_table whose tasks are not those of all.
        uncommon = 0
        if {"n", "common"} <= {*answer.rows.column_names}:
            pairs = (answer.rows[name].to_pylist() for name in ("n", "common"))
            uncommon = sum(
                isinstance(n, int) and isinstance(shared, int) and n > shared
                for n, shared in zip(*pairs, strict=True)
            )
        if uncommon and not common.quiet:
            echo.print_note(
                f"{uncommon} rows have figures over more tasks (n) than all rows have in common "
                "(common): they compare different tasks"
            )


@app.command
def shell(
    *,
    at: At = None,
    including: Include = INCLUDING,
    limits: Limits = LIMITS,
    common: Common = COMMON,
) -> None:
    """Open a prompt for SQL statements on one snapshot of the lake.

    Examples:
      store shell
      store shell --at v1
    """
    from store.cli.shell import interact
    from store.guard.query_process import QueryProcess

    with QueryProcess(common.lake, at, limits, include=including.views()) as lake:
        interact(lake)


@app.command
def tables(*, at: At = None, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List the tables and their numbers of rows."""
    with open_lake(common, at) as lake:
        parts = [
            f"SELECT '{t.name}' AS \"table\", count(*) AS rows, "
            f"{quote_values((t.about,))} AS about FROM {t.name}"
            for t in lake.catalog.tables.values()
        ]
        display.write_rows(lake.run(" UNION ALL ".join(parts)).arrow(), format)


@app.command
def views(
    name: Annotated[str | None, Parameter(name=["--name", "--sql"])] = None,
    *,
    format: ListFormat = "table",
    common: Common = COMMON,
) -> None:
    """List the views, or print the description and the SQL of one.

    Examples:
      store views
      store views leaderboard

    Parameters
    ----------
    name
        Name of the view to print.
    """
    if name is not None:
        echo.print_lines(sql_files.read_view(name))
        return
    rows = [
        {"view": view, "about": sql_files.read_description(sql_files.read_view(view))}
        for view in sql_files.list_views()
    ]
    display.write_rows(rows, format)


@app.command
def describe(
    table: str,
    /,
    *,
    find: Annotated[bool, Parameter(negative="")] = False,
    format: ListFormat = "table",
    common: Common = COMMON,
) -> None:
    """List the columns of a table or a view with their types and descriptions.

    `store views NAME` prints the SQL of a view, which begins with what a row is.

    Examples:
      store describe kernels
      store describe leaderboard --format json
      store describe --find tokens

    Parameters
    ----------
    table
        Name of a table or a view; with --find, a text.
    find
        List the columns of all tables and views whose name or description contains the text.
    """
    from store.cli import reference

    if find or table in sql_files.list_views():
        with open_lake(common) as lake:
            listing = reference.find_columns if find else reference.list_view_columns
            rows = listing(lake, table)
    else:
        tables = catalog.load().tables
        if table not in tables:
            raise UnknownName.among("table or view", table, [*tables, *sql_files.list_views()])
        rows = reference.list_columns(tables[table])
    if not rows:
        raise FlywheelError(
            f'no column of a table or view is about "{table}"', "`store views` lists all views."
        )
    display.write_rows(rows, format, keys=("table", "column", "type", "about"))


@app.command
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
        rows = history.list_snapshots(lake).slice(0, limit)
        display.write_rows(rows, format)


@app.command
def diff(
    before: str,
    after: str | None = None,
    /,
    *,
    table: str | None = None,
    format: Format = "table",
    common: Common = COMMON,
) -> None:
    """Compare two snapshots: rows added, new verdicts, and verdicts and best kernels that changed.

    Examples:
      store diff v1
      store diff v1 v2 --format csv
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
        Format of the result. csv has one line per row added, verdict and best kernel, and says in
        the column `change` which it is.
    """
    import pyarrow as pa

    from store.upkeep import history

    with open_lake(common, before) as old, open_lake(common, after) as new:
        if table is not None:
            display.write_rows(history.list_added_rows(old, new, table), format)
            return
        difference = history.compare(old, new)
    if format == "json":
        tables = ("new_verdicts", "verdicts", "best_kernels")
        listed = {name: list_rows(getattr(difference, name)) for name in tables}
        echo.print_json(vars(difference) | listed)
        return
    counts = [{"table": name, "rows added": n} for name, n in difference.rows_added.items()]
    changes = (
        ("Rows added", "rows added", pa.Table.from_pylist(counts)),
        ("New verdicts", "new verdict", difference.new_verdicts),
        ("Verdicts changed", "changed verdict", difference.verdicts),
        ("Best kernels changed", "changed best kernel", difference.best_kernels),
    )
    if format == "csv":
        parts = [
            rows.add_column(0, "change", pa.array([change] * rows.num_rows, pa.string()))
            for _, change, rows in changes
            if rows.num_rows
        ]
        if parts:
            display.write_rows(pa.concat_tables(parts, promote_options="default"), format)
        return
    echo.print_result(f"snapshot {difference.before} → {difference.after}")
    for title, _, rows in changes:
        if rows.num_rows:
            display.print_table(rows, title=f"{title} ({rows.num_rows})")
        else:
            echo.print_result(f"{title}: none")


@app.command
def compare(
    a: str,
    b: str,
    /,
    *,
    by: By,
    where: str | None = None,
    attempts: Count | None = None,
    resolution: Resolution = RESOLUTION,
    at: At = None,
    format: Format = "table",
    including: Include = INCLUDING,
    common: Common = COMMON,
) -> None:
    """Compare the speedups of two authors, judge versions, hosts or devices.

    Pairs have one task, shape, device, baseline, clock and precision. Authors are compared by the
    best kernel of each, everything else by the same kernel on both sides. Prints the ratio B / A
    with its 95 % interval over tasks, how many more tasks or sessions would find a difference of
    --resolution, the tasks that were left out, and the pairs.

    Examples:
      store compare --by author starter my-model
      store compare --by author my-model my-model-2 --attempts 16
      store compare --by judge-version 12 13 --where "device = 'H200'"
      store compare --by device H100 H200 --resolution 2% --format json

    Parameters
    ----------
    a
        Name or id of an author, version of the judge, name of a host, or device model.
    b
        The other one. A ratio above 1 says that its kernels are faster.
    by
        What A and B are.
    where
        Compare only pairs for which this SQL condition is true. Columns: task, suite,
        suite_revision, level, family, workload, device, baseline, clock, precision, threads.
        Without a condition on them, the device, baseline, clock and precision with the most tasks
        are compared.
    attempts
        Count only the first N attempts of each author at each task; the best kernel of more
        attempts is faster by chance.
    resolution
        Difference to plan for, such as 5% or 0.05. The command prints how many more tasks or
        sessions would find it in 80 % of cases.
    format
        Format of the result. csv has the pairs; json has everything.
    """
    with open_lake(common, at, including) as lake:
        done = compare_samples(
            lake, by, a, b, where=where, attempts=attempts, resolution=resolution
        )
    if format == "json":
        tables = {name: list_rows(getattr(done, name)) for name in ("pairs", "left_out_tasks")}
        echo.print_json(vars(done) | tables)
        return
    if format == "table":
        for line in done.describe():
            echo.print_result(line)
    display.write_rows(done.pairs, format, keys=KEY_COLUMNS)


tag_app = CommandApp(name="tag", help="Name snapshots: add, list and remove tags.")
app.command(tag_app)


@tag_app.command(name="add")
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
    from store.upkeep import history

    locate_lake(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        with writer.reader() as lake:
            tagged = {row["name"]: row["snapshot"] for row in history.list_tags(lake).to_pylist()}
        snapshot = history.add_tag(writer, name, at, note)
        before = tagged.get(name, snapshot)
        moved = f", moved from snapshot {before}" if before != snapshot else ""
        echo.print_result(f"{name} → snapshot {snapshot}{moved}")


@tag_app.command(name="list")
def tag_list(*, format: ListFormat = "table", common: Common = COMMON) -> None:
    """List the tags and their snapshots."""
    from store.upkeep import history

    with open_lake(common) as lake:
        display.write_rows(history.list_tags(lake), format)


@tag_app.command(name="rm")
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
    from store.upkeep import history

    locate_lake(common).require()
    with store.writer(common.lake, author="store tag") as writer:
        history.remove_tag(writer, name, note)
        echo.print_result(f"{name} removed")


@app.command
def show(
    name: str,
    /,
    *,
    lineage: Annotated[bool, Parameter(negative="")] = False,
    at: At = None,
    format: ResultFormat = "table",
    common: Common = COMMON,
) -> None:
    """Show everything the lake knows about a kernel, a task and its kernels, or a run.

    For a kernel: code, evaluations, timings, claims, lineage, findings. For a task: published
    claims by GPU, verdicts, speedups and findings of its kernels. For a run: whether it finished,
    failed, was interrupted, still runs or was killed, its rows and its options.

    Examples:
      store show 82db91
      store show diag_matmul
      store show 82db91 --lineage
      store show 019a4c1e-7d

    Parameters
    ----------
    name
        Name of a task, such as level1/9 or L1-9, or of a run, or the first characters of the id
        of a kernel or run.
    lineage
        Show only the kernels that this one was made from: its parents, the exemplars in its
        prompts, and theirs in turn.
    """
    from store.cli import show

    with open_lake(common, at) as lake:
        show.print_page(
            pages.find_ancestry(lake, name) if lineage else pages.read_page(lake, name), format
        )


@app.command
def receipt(
    kernel: str | None = None,
    /,
    *,
    device: str | None = None,
    clock: Clock | None = None,
    sign: Path | None = None,
    out: Path | None = None,
    schema: Annotated[bool, Parameter(negative="")] = False,
    at: At = None,
    common: Common = COMMON,
) -> None:
    """Print the receipt of a kernel's numbers, one JSON from which anybody can compute them again.

    It has the rows behind the numbers: verdicts with the options of the judge, devices with their
    software, seeds, raw samples of the kernel, the baselines and the control, findings and
    decisions. Private columns are left out and names are hashed, as in `store publish`. Code is
    known by its hash. `store verify` checks a receipt, `evaluators reproduce` judges again.

    Examples:
      store receipt 82db91 --out receipt.json
      store receipt 82db91 --device H200 --clock gpu
      store receipt 82db91 --sign ~/.ssh/id_ed25519 --out receipt.json
      store receipt --schema

    Parameters
    ----------
    kernel
        Id of the kernel, or its first characters.
    device
        Leave out samples of other device models than this one, such as H200.
    clock
        Leave out samples by other clocks.
    sign
        Sign the receipt with this private SSH key, by ssh-keygen.
    out
        Write the receipt to this file instead of stdout.
    schema
        Print the JSON Schema of receipts.
    """
    from store.receipts import receipt as receipts
    from store.receipts import signing

    if schema:
        echo.print_json(receipts.make_schema())
        return
    if kernel is None:
        raise UsageError("`store receipt` needs KERNEL", "`store best` lists kernels.")
    with open_lake(common, at) as lake:
        made = receipts.make_receipt(lake, kernel, device=device, clock=clock)
    if sign is not None:
        made["signature"] = signing.sign(receipts.get_signed(made), sign)
    data = receipts.write_receipt(made)
    if out is None:
        sys.stdout.write(data.decode())
        return
    with write_file(out, "store receipt") as target:
        target.write_bytes(data)
    name = made["kernel"]["kernel_id"][:12]
    echo.print_result(f"receipt of kernel {name}, {len(data)} bytes → {out}")


@app.command
def verify(
    file: Path,
    /,
    *,
    code: Path | None = None,
    task: list[Path] | None = None,
    allowed_signers: Path | None = None,
    format: ResultFormat = "table",
    common: Common = COMMON,
) -> None:
    """Check a receipt: compute its figures again from its samples, and say what is not checked.

    Needs no lake. Exits with 3 if anything does not hold: a changed byte, a figure that does not
    follow from the samples, a different code or task, or a signature by someone else.

    Examples:
      store verify receipt.json
      store verify receipt.json --code kernel.py --task task.py
      store verify receipt.json --allowed-signers signers

    Parameters
    ----------
    file
        What `store receipt` wrote.
    code
        File of the kernel, or the folder with its files, to compare with its hashes.
    task
        File with the text of the task. Repeat it for several tasks.
    allowed_signers
        File with a line NAME KEYTYPE KEY for each signer that you accept, as ssh-keygen reads it.
    format
        Format of the result. json has the figures, too.
    """
    from store.receipts.check import read_file, summarize
    from store.receipts.check import verify as run

    done = run(read_file(file), code=code, tasks=task or (), allowed_signers=allowed_signers)
    if format == "json":
        kept = {name: done.receipt[name] for name in ("kernel", "tasks", "figures", "stated")}
        echo.print_json(
            kept | {"checked": done.checked, "unchecked": done.unchecked, "signer": done.signer}
        )
        return
    for line in summarize(done.receipt):
        echo.print_result(line)
    for line in done.checked:
        echo.print_result(f"checked      {line}")
    for line in done.unchecked:
        echo.print_result(f"not checked  {line}")


@app.command
def best(
    task: str | None = None,
    /,
    *,
    device: str | None = None,
    baseline: str = "eager",
    at: At = None,
    format: ListFormat = "table",
    including: Include = INCLUDING,
    common: Common = COMMON,
) -> None:
    """List the best kernel of each task on one device model: one line per task.

    Kernels are ranked by the lower bound of their speedup. A note names the device, the clock and
    the precision. The view best_kernels has every device and baseline.

    Examples:
      store best
      store best diag_matmul --device H200

    Parameters
    ----------
    task
        List only this task: its name or id.
    device
        Device model, such as H200 (default: of those with a kernel that ranks, the one that was
        measured last).
    baseline
        Baseline that the speedups are over.
    """
    with open_lake(common, at, including) as lake:
        task_id = None if task is None else pages.find_task(lake, task)["task_id"]
        places = lake.run("SELECT DISTINCT device FROM best_kernels ORDER BY ALL").rows()
        devices = [str(row["device"]) for row in places]
        device = None if device is None else pages.choose_device(device, devices)
        asked = {"task_id": task_id, "device": device, "baseline": baseline}
        rows = lake.run(read_sql(__file__, "best"), asked).arrow()
        judged = pages.read_judged_here(lake)
        is_empty = not lake.run("FROM kernels LIMIT 1").rows()
    here = "" if judged is None else f"Of those judged here, {judged}."
    if not rows.num_rows:
        why = '`store query "FROM unranked_sessions"` says why each does not rank'
        some = f" Kernels rank on {', '.join(devices)}." if devices else ""
        raise FlywheelError(
            f"no kernel ranks over {baseline} on {device or 'any device'}",
            FIRST_ROWS
            if is_empty
            else f"{here or '`evaluators run` judges kernels.'} {why}.{some}",
        )
    told = {name: sorted({*map(str, rows[name].to_pylist())}) for name in _TOLD_ONCE}
    others = rows["others"][0].as_py()
    once = [name for name, values in told.items() if len(values) == 1]
    display.write_rows(rows.drop_columns([*once, "others"]), format)
    if not common.quiet:
        words = (f"{name} {', '.join(values)}" for name, values in told.items())
        more = f"; tasks on other devices: {others} (--device)" if others else ""
        echo.print_note(f"{', '.join(words)}, any author, speedup over {baseline}{more}")
        if judged is not None and judged.ranking < judged.correct:
            echo.print_note(here)


@app.command
def headline(
    name: str = "cuda-l1",
    /,
    *,
    at: At = None,
    format: ResultFormat = "table",
    common: Common = COMMON,
) -> None:
    """Derive a published figure step by step, each step with its SQL.

    Examples:
      store headline
      store headline cuda-l1 --at v1 --format json

    Parameters
    ----------
    name
        Name of the figure.
    """
    from store.headlines import story

    with open_lake(common, at) as lake:
        story.print_story(story.read_story(lake, name), format)


@app.command
def report(
    *,
    out: Path = Path("report"),
    at: At = None,
    run: str | None = None,
    including: Include = INCLUDING,
    common: Common = COMMON,
) -> None:
    """Write a report about the lake: speedups, correctness, claims, techniques, best kernels.

    Each section is its answer in a sentence, one chart, the SQL behind both, and a link to the page
    of `store explore` that has the rest. Writes report.html, one file without scripts or external
    resources, and report.md with its charts in figures/. One snapshot always gives the same bytes,
    unless a tag is added, moved or removed.

    Examples:
      store report --out report
      store report --at h200 --out report-h200
      store report --run RUN --out report-run

    Parameters
    ----------
    out
        Folder to write. A report that this command wrote there before is replaced.
    run
        Name or id of a training or sampling run, or the first characters of the id. The report then
        covers this run: learning curves, its newest best kernel with its lineage, and costs.
    """
    from store.explore.report import build_report, write_report

    begun = time.monotonic()
    with (
        store.open(common.lake, at, include=including.views()) as lake,
        write_folder(out, "store report") as folder,
    ):
        count = write_report(build_report(lake, run), folder)
        snapshot = lake.snapshot
    html = out / "report.html"
    echo.print_result(
        f"{html} ({html.stat().st_size / 1e6:.2f} MB), report.md, {count} charts, "
        f"snapshot {snapshot}, {time.monotonic() - begun:.1f} s"
    )


@app.command
def explore(
    *,
    at: At = None,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 8765,
    timeout: float = 30.0,
    including: Include = INCLUDING,
    common: Common = COMMON,
) -> None:
    """Serve pages to read the lake in a browser: tasks, kernels, runs, findings, SQL.

    The pages are read-only and need no network. The server answers this machine only
    (127.0.0.1); to read a lake on another host, forward the port with `ssh -L`. Pages follow the
    newest snapshot unless --at or their address names one. If the environment variable
    FLYWHEEL_EXPLORE_TOKEN is set, anyone with the token can confirm and dismiss findings.

    Examples:
      store explore
      store explore --at v1 --port 9000
      FLYWHEEL_EXPLORE_TOKEN=SECRET store explore

    Parameters
    ----------
    port
        Port to listen on; 0 takes a free one.
    timeout
        End the SQL of a page or of the console after this many seconds.
    """
    from store.explore.server.app import serve

    serve(locate_lake(common), at, port, timeout, including.views())


@app.command
def mcp(
    *,
    at: Annotated[str | None, Parameter(show_default=False)] = None,
    address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
    limits: Annotated[AgentLimits, Parameter(name="*")] = _AGENT_LIMITS,
    common: Common = COMMON,
) -> None:
    """Serve tools to a coding agent over MCP: SQL, tasks, kernels, attempts, prompts. Read-only.

    An MCP client starts the command and talks to it over stdio; with --port it serves streamable
    HTTP. `evaluators mcp` adds tools that submit kernels to the judge. docs/mcp.md has examples.

    Examples:
      store mcp
      store mcp --at v1 --timeout 10
      store mcp --port 8766
      FLYWHEEL_MCP_TOKEN=SECRET store mcp --host 0.0.0.0 --port 8766

    Parameters
    ----------
    at
        Read the lake at this tag, snapshot number or ISO time (default: newest at each call).
    """
    from store.mcp.lake_tools import LakeTools

    serve_tools(LakeTools(locate_lake(common), at, limits), build_server, address)


import_app = CommandApp(
    name="import",
    help="""Import kernels, verdicts and published figures.

    Examples:
      store import starter
      store import kernels ./my-kernels
      store import kernelbench ./KernelBench --revision v0.1 --tag kernelbench
      store import detect ./downloads/submissions.parquet
    """,
)
export_app = CommandApp(
    name="export",
    help="""Export kernels or tables to the formats of other tools. Private columns are left out.

    Examples:
      store export parquet ./tables
      store export kernelbench-run ./runs/mine --at v1
    """,
)
app.command(import_app)
app.command(export_app)


@import_app.command
def detect(path: Path, /, *, format: ListFormat = "table", common: Common = COMMON) -> None:
    """Print the importer that fits a file or folder; nothing is imported.

    Parameters
    ----------
    path
        File or folder to look at.
    """
    from store.importers.reading import sources

    importer, seen = sources.choose(path, sources.detect(path))
    display.write_rows([{"importer": importer, "recognizes": seen}], format)


def _import_command(importer: Member) -> Callable[..., None]:
    module = importer.load()

    def command(
        path: Path | None = None,
        /,
        *,
        config: Any = None,
        tag: Annotated[str | None, Parameter(help="Name the snapshot after the import.")] = None,
        limits: Annotated[ParquetLimits, Parameter(name="*")] = PARQUET_LIMITS,
        common: Common = COMMON,
    ) -> None:
        from store.foreign import parquet
        from store.importers.reading import pieces

        with parquet.use_limits(limits):
            pieces.run_command(importer, module, path, config or module.Config(), tag, common)

    about = Parameter(help="File or folder to read.", show=getattr(module, "TAKES_PATH", True))
    command.__annotations__["path"] = Annotated[Path | None, about]
    command.__annotations__["config"] = annotate_config(module.Config)
    return command


def _export_command(exporter: Member) -> Callable[..., None]:
    module = exporter.load()

    def command(
        folder: Annotated[Path, Parameter(help="Folder to write; a repeated export replaces it.")],
        /,
        *,
        config: Any = None,
        at: At = None,
        including: Include = INCLUDING,
        common: Common = COMMON,
    ) -> None:
        from store.exporters.writing import run as exporting

        with store.open(common.lake, at, include=including.views()) as lake:
            counts = exporting.export(lake, module, folder, config or module.Config())
            echo.print_result(exporting.summarize(exporter, counts, folder, lake.snapshot))

    command.__annotations__["config"] = annotate_config(module.Config)
    return command


@app.command
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
    format: ResultFormat = "table",
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
        Comma-separated tables, or all. Tables that they refer to are included. (Default: all except
        rollout_tokens; with --dataset, the tables that the datasets refer to.)
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
    """
    from store.hub.edition_writer import LOCAL, Options
    from store.hub.publish import publish as run

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
    sizes = f"{done.sent_bytes / 1e6:.2f} of {done.all_bytes / 1e6:.2f} MB"
    sizes = f"{echo.count_nouns(files, 'file')}, {sizes}"
    if not done.fresh:
        line += f", already there at {done.revision}"
    elif dry_run:
        line = f"would publish {line}; {sizes}"
    else:
        line += f"; {sizes} → {done.revision}"
    echo.print_result(line)


@app.command
def pull(
    repo: str,
    /,
    *,
    limits: Annotated[ParquetLimits, Parameter(name="*")] = PARQUET_LIMITS,
    format: ResultFormat = "table",
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
    """
    from store.hub.pull import pull as run

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
                echo.print_result(f"  {display.format_cell(example)}")
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


@app.command
def init(*, common: Common = COMMON) -> None:
    """Create a lake, or add the tables and columns that catalog.yaml has and the lake lacks."""
    with store.writer(common.lake, author="store init") as writer:
        snapshot = writer.flush()
        echo.print_result(f"lake at {writer.location.url}, snapshot {snapshot}")


@app.command
def check(
    *,
    full: Annotated[bool, Parameter(negative="")] = False,
    format: ListFormat = "table",
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
        Read everything again, including what was checked before.
    """
    from store.upkeep import integrity

    with echo.show_progress(quiet=common.quiet) as show:
        report = integrity.inspect(locate_lake(common), show, full=full)
    if report.problems:
        display.write_rows([asdict(problem) for problem in report.problems], format)
        echo.print_error(FlywheelError(f"rules broken: {len(report.problems)}"))
        sys.exit(3)
    if report.is_partial:
        unread, files = len(report.compared.unread), len(report.compared.files)
        echo.print_result(
            "clean: every row and file that is new or changed since the last check holds; "
            f"{unread} of {files} data files were not read again "
            "(`store check --full` reads all rows and files)"
        )
    else:
        echo.print_result("clean: every id, key, reference, check, count and file holds")


@app.command
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
        Delete them without asking.
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


@app.command
def expire(
    *,
    older_than_days: Annotated[
        float | None, Parameter(validator=Number(gte=0, lte=100_000))
    ] = None,
    tokens: str | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    common: Common = COMMON,
) -> None:
    """Forget old snapshots, except the newest, tagged and cited ones, or delete a run's tokens.

    A dataset, run or attempt cites the snapshot that it was read from. Rows of the newest snapshot
    always stay, except that --tokens deletes the rows of one run in `rollout_tokens`. Disk space is
    not freed at once: `store compact` and `store expire` delete files that no snapshot needs, once
    they are a day old.

    Examples:
      store expire --older-than-days 30 --dry-run
      store expire --older-than-days 30
      store expire --tokens "my run"

    Parameters
    ----------
    older_than_days
        Forget snapshots that are more than N days old.
    tokens
        Delete token ids, masks and log-probabilities of this run: its name, or the first characters
        of its id. Its attempts, rewards and metrics stay. Nothing is deleted while a tag, or a
        dataset with kernels of the run, names a snapshot that has these tokens.
    dry_run
        Print what would expire; change nothing.
    """
    from store.upkeep import maintenance

    location = locate_lake(common)
    hours = maintenance.REPLACED_AGE / timedelta(hours=1)
    if (older_than_days is None) == (tokens is None):
        raise UsageError(
            "give either --older-than-days or --tokens", "`store expire --help` explains both."
        )
    if tokens is not None:
        with store.open(location.url) as lake:
            run_id = pages.find_run(lake, tokens)
        count = maintenance.expire_tokens(location, run_id, dry_run=dry_run)
        verb = "would delete" if dry_run else "deleted"
        echo.print_result(f"{verb} the tokens of {count} attempts of run {run_id}")
        if count and not dry_run:
            echo.print_note(
                "Earlier snapshots keep them: run `store expire --older-than-days 0`, and "
                f"`store compact` {hours:.0f} hours later, to free the disk space."
            )
        return
    assert older_than_days is not None
    done = maintenance.expire(location, timedelta(days=older_than_days), dry_run=dry_run)
    for snapshot, reasons in sorted(done.spared.items()):
        echo.print_note(f"snapshot {snapshot} stays: {', '.join(reasons[:3])}")
    verb = "would expire" if dry_run else "expired"
    echo.print_result(f"{verb} {len(done.expired)} snapshots, kept {len(done.spared)}")
    if done.expired and not dry_run:
        echo.print_note(
            "No disk space is freed yet. A running query may still need the files of these "
            f"snapshots: run `store compact` in {hours:.0f} hours or later to delete them."
        )


@app.command
def backup(
    target: Path,
    /,
    *,
    without_tokens: Annotated[bool, Parameter(negative="")] = False,
    common: Common = COMMON,
) -> None:
    """Copy the lake to a folder that opens as a lake. A later backup copies only new files.

    Examples:
      store backup /mnt/backup/lake
      store backup /mnt/backup/lake --without-tokens

    Parameters
    ----------
    target
        Folder of the copy.
    without_tokens
        Leave out the rows of `rollout_tokens`, usually the most bytes: the copy has every attempt
        with its text, rewards and verdicts, but no step of it can be replayed.
    """
    from store.upkeep import maintenance

    copied, present = maintenance.backup(locate_lake(common), target, without_tokens=without_tokens)
    echo.print_result(
        f"{echo.count_nouns(copied, 'file')} copied, {present} already there → {target}"
    )
    _note_left_out(target)


@app.command
def restore(backup: Path, /, *, common: Common = COMMON) -> None:
    """Put a backup in the place of a lake whose catalog is missing or cannot be read.

    Data files that are still there stay. The damaged catalog is kept beside the new one. Rows that
    were committed after the backup are lost. The command never replaces a lake that can be opened.
    To read a backup where it is, pass its folder as --lake.

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
    echo.print_result(
        f"{echo.count_nouns(copied, 'file')} copied, {present} already there → {location.url}"
    )
    _note_left_out(backup)


def _note_left_out(backup: Path) -> None:
    from store.lake.location import FolderLocation
    from store.upkeep import maintenance

    location = FolderLocation(backup.resolve())
    with maintenance.open_for_reading(location) as connection:
        count = maintenance.count_left_out(connection, location)
    if count:
        echo.print_note(
            f"The tokens of {count} attempts are left out: `trainers replay` needs the original "
            "lake, or a backup with tokens."
        )


@app.command
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
    from store.lake.location import Location
    from store.upkeep.move import move as run

    old, new = Location.of(source), Location.of(target)
    with echo.show_progress(quiet=common.quiet) as show:
        done = run(old, new, show)
    if isinstance(done, int):
        echo.print_result(f"moved before; {done} spooled files were forwarded → {new.url}")
        return
    echo.print_result(
        f"{done.snapshots} snapshots, {done.rows} rows and {done.files} files are equal "
        f"({done.copied} files copied now) → {new.url}"
    )


@app.command
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

    from store.writing import spool

    location, rules = locate_lake(common), catalog.load()
    location.require()
    bundles = spool.list_rejected(rules, location.spool)
    names = [bundle.name for bundle in bundles]
    given = retry or discard
    if given is None:
        columns = [field.name for field in fields(spool.RejectedBundle)]  # also without bundles
        rows = {name: [getattr(bundle, name) for bundle in bundles] for name in columns}
        display.write_rows(pa.table(rows), format)
        return
    if retry and discard:
        raise FlywheelError("--retry and --discard cannot be combined", "Run one, then the other.")
    for name in given:
        if name not in ("all", *names):
            raise UnknownName.among("rejected bundle", name, names)
    chosen = names if "all" in given else list(dict.fromkeys(given))
    if discard:
        for name in chosen:
            spool.discard(location.spool, name)
        echo.print_result(f"{len(chosen)} bundles deleted")
        return
    with store.writer(common.lake, author="store rejected") as writer:
        places = [spool.put_back(rules, location.spool, name) for name in chosen]
        snapshot = writer.flush()
    refused = sum(place is None or spool.is_kept(place) for place in places)
    echo.print_result(f"{len(chosen) - refused} bundles stored → snapshot {snapshot}")
    if refused:
        echo.print_error(
            FlywheelError(f"bundles refused again: {refused}", "`store rejected` says why.")
        )
        sys.exit(3)


groups = [
    Group(import_app, "store.importers", _import_command),
    Group(export_app, "store.exporters", _export_command),
]
"""Commands with one subcommand per member."""


def main() -> None:
    """Run the `store` command."""
    members.run(app, *groups)


if __name__ == "__main__":
    main()
