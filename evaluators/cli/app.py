"""The `evaluators` command: list the evaluators, judge what is pending, check one file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from evaluators.cli import diagnose, findings
from evaluators.judge import Config
from store.commandline import echo, members
from store.commandline.escape import quote_name
from store.commandline.help import make_room_app
from store.commandline.members import Common, Format
from store.commandline.progress import show_progress
from store.errors import FlywheelError, SandboxFailed

if TYPE_CHECKING:
    from evaluators.scheduling.judge_process import Host

log = logging.getLogger(__name__)

_DEFAULT = Common()
_CONFIG = Config()

app = make_room_app(
    "evaluators",
    """Judge kernels: right or wrong, and how fast against the eager baseline.

A candidate runs in a process of its own under limits and never states its own verdict.""",
    [
        "evaluators run",
        "evaluators run --suite kernelbench --device cuda --limit 100",
        "evaluators run --device cuda:0 --where \"task_name LIKE 'softmax%'\"",
        "evaluators check my_kernel.py --task softmax",
        "evaluators tasks",
    ],
)
members.add_list(app, "evaluators")
findings.add_to(app)
diagnose.add_to(app)


def main() -> None:
    """Run the `evaluators` command."""
    members.run(app)


@app.command
def run(
    *,
    evaluator: str = "judge",
    pending: Annotated[bool, Parameter(negative="")] = True,
    kernel: str | None = None,
    where: str | None = None,
    suite: str | None = None,
    device: str = "auto",
    workers: int = 1,
    ray: str | None = None,
    limit: int | None = None,
    contended: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    config: Annotated[Config, Parameter(name="*")] = _CONFIG,
    common: Common = _DEFAULT,
) -> None:
    """Judge the kernels that lack a verdict of this evaluator version on these devices.

    Each result is appended as it comes: interrupt it when you like, run it again to go on.

    Examples:
      evaluators run --limit 20
      evaluators run --suite kernelbench --device cuda:0,cuda:1
      evaluators run --kernel 9f2c41 --dry-run

    Parameters
    ----------
    evaluator
        Which evaluator (`evaluators list`).
    pending
        Judge what lacks a verdict; what has one is never judged again.
    kernel
        Only the kernel whose id starts so.
    where
        Only rows for which this SQL holds: kernel_id, task_id, workload_id, axes, compiles, suite,
        level, task_name, path.
    suite
        Only the tasks of this suite (default: every suite of the lake).
    device
        cpu, cuda (every GPU) or names such as cuda:0,cuda:1; auto takes every GPU where there is
        one. Each GPU times one kernel at a time, while others are compiled on spare cores.
    workers
        Judges side by side on the processor, each with its own cores.
    ray
        Address of a Ray cluster (auto, HOST:PORT, ray://HOST:PORT): one judge per GPU there, or
        --workers judges with --device cpu.
    limit
        At most so many kernels.
    contended
        Also judge again what was only timed while other work shared the host (flag contended).
    dry_run
        Say what would be judged, and judge nothing.
    config
        Settings of `judge`; another evaluator runs with its own defaults.
    """
    from contextlib import ExitStack

    import store
    from evaluators.device import placement
    from evaluators.scheduling import pending as pending_module
    from evaluators.scheduling import queue, ray_cluster
    from evaluators.scheduling.judge_process import Host
    from evaluators.scheduling.prebuild import Builder

    layout = placement.divide_machine(device, workers if ray is None else 1)
    member = members.find_member("evaluators", evaluator).load()
    settings = config if member.Config is Config else member.Config()
    wanted = pending_module.Wanted(
        suite=suite, kernel=kernel, where=where, contended=contended, limit=limit
    )
    store.open(common.lake).close()  # a lake that is not there is refused before torch is loaded
    with ExitStack() as stack:
        hosts: Sequence[queue.Judge]
        builders: list[Builder] = []
        if ray is not None:
            hosts = stack.enter_context(
                ray_cluster.judges(ray, evaluator, device, settings, workers)
            )
        else:
            places = layout.places[:1] if dry_run else layout.places
            made = pending_module.local(evaluator, places, layout.builders, settings)
            hosts, builders = stack.enter_context(made)
        if hosts and isinstance(hosts[0], Host):
            _warn(hosts[0])
        names = ", ".join(sorted({host.row["name"] for host in hosts}))
        on = names if len(hosts) == 1 else f"{len(hosts)} x {names}"
        if dry_run:
            with store.open(common.lake) as lake:
                found = pending_module.pending(lake, member, [hosts[0].row], wanted)
                snapshot = lake.snapshot
            for row in found.slice(0, 10).to_pylist():
                task, path = quote_name(row["task_name"]), quote_name(row["path"])
                echo.print_note(f"{task:28} {path:28} {row['kernel_id'][:12]}")
            echo.print_result(f"would judge {found.num_rows} on {on} → snapshot {snapshot} stays")
            return
        with show_progress(quiet=common.quiet) as progress:
            tally = pending_module.run(
                common.lake, member, hosts, builders, settings, wanted, progress
            )
    if not tally.evaluations:
        echo.print_result(f"0 pending on {on} at snapshot {tally.snapshot}")
        return
    echo.print_note("  ".join(f"{status} {n}" for status, n in sorted(tally.statuses.items())))
    if tally.contended:
        echo.print_note(
            f"{tally.contended} sessions shared this host with other work and do not rank. Measure"
            " again on a quiet machine: evaluators run --contended"
        )
    echo.print_result(str(tally))


@app.command
def doctor(
    *,
    device: str = "auto",
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Try every wall around candidates; print what this machine cannot enforce and how to allow it.

    Verdicts store the same: columns sandbox_level and sandbox_missing of evaluations.

    Parameters
    ----------
    device
        cpu, cuda:0, cuda:1 …; auto takes the first GPU where there is one.
    format
        table, json or csv.
    """
    from evaluators.device import placement
    from evaluators.sandbox import doctor as walls
    from evaluators.scheduling.judge_process import Host

    place = placement.divide_machine(device).places[0]
    with Host("judge", place.device, _CONFIG, place.cores) as host:
        rows = walls.describe_walls(*host.walls())
        name = host.row["name"]
    if format != "table":
        import pyarrow as pa

        from store.commandline import display

        display.write_rows(pa.Table.from_pylist(rows), format)
        return
    for line in walls.format_lines(rows):
        echo.print_result(line)
    absent = sum(not row["holds"] for row in rows)
    echo.print_result(f"{len(rows) - absent} of {len(rows)} walls hold around candidates on {name}")


@app.command
def tasks(
    *,
    pending: Annotated[bool, Parameter(negative="")] = True,
    task: Annotated[str | None, Parameter(show_default=False)] = None,
    device: str = "auto",
    common: Common = _DEFAULT,
) -> None:
    """Find the tasks that answers without work pass; verdicts on them carry the flag weak_task.

    Each result is a row of task_audits, appended at once: interrupt the command at any time, and
    run it again to resume. Rankings and tables leave weak tasks out.

    Examples:
      evaluators tasks
      evaluators tasks --task level2/83 --device cpu

    Parameters
    ----------
    pending
        Audit the tasks that this version has not seen on this device; others are never seen twice.
    task
        Audit only the tasks with this name in a suite, or with this id or start of an id.
    device
        cpu, cuda:0, cuda:1 …; auto takes the first GPU where there is one.
    """
    import store
    from evaluators.device import placement
    from evaluators.scheduling import task_audits
    from evaluators.scheduling.judge_process import Host

    place = placement.divide_machine(device).places[0]
    store.open(common.lake).close()  # a lake that is not there is refused before torch is loaded
    with Host("judge", place.device, _CONFIG, place.cores) as host:
        tally = task_audits.run(common.lake, host, task)
        machine = host.row["name"]
    if not tally.audited and not tally.failed:
        echo.print_result(f"0 tasks pending on {machine} at snapshot {tally.snapshot}")
        return
    for name, passes in tally.weak.items():
        echo.print_note(f"weak: {quote_name(name):28} {', '.join(passes)}")
    for name, why in tally.failed.items():
        echo.print_note(f"cannot be run: {quote_name(name)}")
        echo.print_foreign(why, sys.stderr)
    echo.print_result(str(tally))


@app.command
def check(
    file: Path,
    /,
    *,
    task: str,
    device: str = "auto",
    format: Literal["table", "json"] = "table",
    config: Annotated[Config, Parameter(name="*")] = _CONFIG,
    common: Common = _DEFAULT,
) -> None:
    """Judge one file of your own without storing anything; exits 0 only where it is correct.

    Examples:
      evaluators check my_kernel.py --task softmax
      evaluators check my_kernel.py --task ./my_task.py --device cuda:0

    Parameters
    ----------
    file
        Python file that defines ModelNew.
    task
        Name or id of a task in the lake, or a task file (KernelBench format).
    device
        cpu, cuda:0, cuda:1 …; auto takes the first GPU where there is one.
    format
        table or json (all rows, raw samples included).
    config
        Settings of the evaluator.
    """
    from evaluators.cli import verdict_text
    from evaluators.device import placement
    from evaluators.scheduling import pending as pending_module
    from evaluators.scheduling.judge_process import Host

    place = placement.divide_machine(device).places[0]
    if not file.is_file():
        raise FlywheelError(f"no file {file}", "Give the path of a Python file.")
    problem = pending_module.problem(task, common.lake)
    with Host("judge", place.device, config, place.cores) as host:
        _warn(host)
        case = problem.case(file, host.row["kind"])
        try:
            tables = host.judge(case)
        except SandboxFailed as failed:
            log.warning("judged once more: %.300s", failed.message)
            host.restart()
            tables = host.judge(case)
    if format == "json":
        echo.print_json(tables)
    else:
        colour, width = sys.stdout.isatty(), echo.terminal_width(sys.stdout)
        device_name = host.row["name"]
        for line in verdict_text.lines(file.name, device_name, tables, colour=colour, width=width):
            echo.print_painted(line)
    if tables["evaluations"][0]["status"] != "correct":
        sys.exit(1)


def _warn(host: Host) -> None:
    """Say once what this machine does not enforce."""
    from evaluators.sandbox.doctor import format_warning

    text = format_warning(host.walls()[0])
    if text is not None:
        echo.print_note(text)
