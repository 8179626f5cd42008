"""The `evaluators` command: list the evaluators, judge pending kernels, check one file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from cyclopts import App, Parameter
from cyclopts.validators import Number

import store
from evaluators.device import placement
from evaluators.judge import Config
from evaluators.judging import host, nvidia_tools
from evaluators.judging.case import Case, parse_axes
from evaluators.limits import kinds
from evaluators.processes.messages import name_axes
from evaluators.sandbox import doctor as walls
from evaluators.scheduling import contract
from evaluators.scheduling.cases import KernelText, TaskText, read_cases, read_kernel, read_task
from evaluators.scheduling.contract import Evaluator
from evaluators.scheduling.judges.process import JudgeProcess, start_judges
from store import faults, read_sql
from store.code import entry_points
from store.commandline import display, echo, interrupts, members
from store.commandline.echo import show_progress
from store.commandline.escape import escape_terminal, quote_name
from store.commandline.members import (
    AuthorOption,
    Common,
    Count,
    DeviceOption,
    Format,
    Member,
    make_room_app,
)
from store.errors import (
    FIRST_ROWS,
    DeviceUnavailable,
    FlywheelError,
    HostUnfit,
    LakeNotFound,
    SandboxFailed,
    UnknownName,
)
from store.mcp import serving
from store.mcp.serving import Address, AgentLimits
from store.schema.clocks import RESOLVED

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from evaluators.scheduling.run import Tally
    from store.mcp.lake_tools import LakeTools

log = logging.getLogger(__name__)

app = make_room_app(
    "evaluators",
    """Judge kernels: test if they are correct, and measure their speedup over PyTorch eager.

Each candidate runs in a sandboxed process, which does not compute its own verdict.""",
    [
        "evaluators run",
        "evaluators run --suite starter --on cuda --limit 100",
        "evaluators run --on cuda:0 --where \"task_name LIKE '%softmax%'\"",
        "evaluators check my_kernel.py --task temperature_softmax",
        "evaluators add my_kernel.py --task temperature_softmax",
        "evaluators tasks",
        "evaluators serve",
    ],
)
members.add_list(app, "evaluators")

_DEFAULT = Common()
_ADDRESS = Address()
_LISTED = 10
"""Kernels that `run --dry-run` lists."""
_MOST_NAMES = 12
_WATCH_S = 0.2
"""Seconds between two looks at a watched file."""
ListFormat: TypeAlias = Annotated[Format, Parameter(help="Format of the list.")]
Device: TypeAlias = Annotated[
    DeviceOption,
    Parameter(
        help="cpu, or a GPU such as cuda:0. cuda means the first GPU; auto means the first GPU, or"
        " the CPU if there is none."
    ),
]
Devices: TypeAlias = Annotated[
    DeviceOption,
    Parameter(
        help="cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the"
        " CPU if there is none."
    ),
]
_EvaluatorName: TypeAlias = Annotated[
    str,
    Parameter(help="Name of the evaluator (`evaluators list`). Add --help to list its options."),
]
_Workers: TypeAlias = Annotated[
    Count,
    Parameter(help="Number of judges on the CPU, each with its own cores, or on each GPU."),
]
_RayAddress: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Address of a Ray cluster (auto, HOST:PORT, ray://HOST:PORT). It runs one judge per"
        " GPU, or --workers judges with --on cpu."
    ),
]
_Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


def name_devices(devices: Sequence[Mapping[str, Any]]) -> str:
    """Return the names of the devices of some judges, and how many judges if there are several.

    >>> name_devices([{"name": "H100"}]), name_devices([{"name": "H100"}, {"name": "H100"}])
    ('H100', '2 x H100')
    """
    names = ", ".join(sorted({device["name"] for device in devices}))
    return names if len(devices) == 1 else f"{len(devices)} x {names}"


def print_tally(tally: Tally, devices: str) -> None:
    """Print what a run has appended, and how many of its kernels do not rank."""
    if tally.held_by_others:
        be = "is" if tally.held_by_others == 1 else "are"
        kernels = echo.count_nouns(tally.held_by_others, "kernel")
        echo.print_note(f"another run is judging {kernels}, which {be} left to it")
    for why, number in tally.unfit.items():
        stay = "stays" if number == 1 else "stay"
        echo.print_note(f"{echo.count_nouns(number, 'kernel')} {stay} pending: {why}")
    if not tally.evaluations and not tally.unfit:
        echo.print_result(f"0 pending on {devices} at snapshot {tally.snapshot}")
        return
    if tally.statuses:
        statuses = (f"{status} {n}" for status, n in sorted(tally.statuses.items()))
        echo.print_note("  ".join(statuses))
    if tally.contended:
        do = "does" if tally.contended == 1 else "do"
        echo.print_note(
            f"{echo.count_nouns(tally.contended, 'kernel')} ran while this host did other work and"
            f" {do} not rank. Measure again on a quiet machine: evaluators run --contended"
        )
    if tally.unranked:
        do = "does" if tally.unranked == 1 else "do"
        echo.print_note(
            f"{echo.count_nouns(tally.unranked, 'kernel')} {do} not rank by any clock."
            ' store query "FROM unranked_sessions" says why.'
        )
    if tally.shortages.are_frequent:
        echo.print_note(str(tally.shortages))
    echo.print_result(str(tally))


def run(
    *,
    evaluator: _EvaluatorName = contract.DEFAULT,
    kernel: str | None = None,
    where: str | None = None,
    suite: str | None = None,
    device: DeviceOption = "auto",
    workers: Count = 1,
    ray: _RayAddress = None,
    limit: Count | None = None,
    contended: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Judge the kernels that have no verdict of this evaluator version on these devices.

    On a GPU, each kernel gets a verdict under each --precision. Verdicts of other hosts with the
    same GPU model and software count. Each result is appended immediately: run an interrupted
    command again to resume it.

    Examples:
      evaluators run
      evaluators run --suite starter --on cuda --limit 100
      evaluators run --on cuda:0 --where "task_name LIKE '%softmax%'"
      evaluators run --precision torch_default --precision fp32_strict
      evaluators run --contended --dry-run
      evaluators run --suite starter --draw-shapes 5
      evaluators run --kernel 82df3c --axes ROWS=1 --axes ROWS=1000,COLS=77

    Parameters
    ----------
    kernel
        Judge only the kernel with this id prefix.
    where
        Judge only rows for which this SQL condition is true. Columns: kernel_id, task_id,
        workload_id, axes, compiles, precision, suite, level, task_name, path.
    suite
        Judge only the tasks of this suite (default: every suite of the lake).
    device
        cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the CPU
        if there is none. Spare cores compile kernels ahead for GPUs.
    workers
        Number of judges on the CPU, each with its own cores, or on each GPU. Those of a GPU
        share its memory, and only one of them times a kernel at a time, on cores kept for that.
        Kernels for which the memory does not suffice are judged again alone, which takes longer.
    limit
        Give at most N verdicts: one per kernel and precision.
    contended
        Also judge again the kernels whose timing other work disturbed (flag contended).
    dry_run
        Print what would be judged; judge nothing.
    """
    from evaluators.scheduling import ray_cluster
    from evaluators.scheduling import run as runs

    module = contract.load(evaluator)
    selection = runs.Selection(
        suite=suite,
        kernel=kernel,
        where=where,
        contended=contended,
        precisions=tuple(contract.list_precisions(config, "cuda")),
        protocol=getattr(config, "protocol", None),
        shapes=tuple(name_axes(parse_axes(text)) for text in getattr(config, "axes", ())),
        limit=limit,
    )

    def list_pending(judging_device: dict[str, Any], devices: str) -> None:
        with store.open(common.lake) as lake:
            pending = runs.find_pending(lake, module, [judging_device], selection)
            snapshot = lake.snapshot
        for row in pending.slice(0, _LISTED).to_pylist():
            task, path = quote_name(row["task_name"]), quote_name(row["path"])
            echo.print_note(f"{task:28} {path:28} {row['kernel_id'][:12]}")
        if pending.num_rows > _LISTED:
            echo.print_note(f"… and {pending.num_rows - _LISTED} more")
        count = echo.count_nouns(pending.num_rows, "kernel")
        echo.print_result(f"would judge {count} on {devices} at snapshot {snapshot}")

    if ray is not None:
        ray_cluster.check_device(device)
        store.open(common.lake).close()
        opened = runs.open_judges(ray_cluster.start_judges(ray, evaluator, device, config, workers))
    else:
        layout = placement.divide_machine(device, workers)
        places = layout.places[:1] if dry_run else layout.places
        with store.open(common.lake) as lake:  # refuse a missing lake before torch is loaded
            if not lake.run("FROM kernels LIMIT 1").rows():
                echo.print_result(f"0 pending at snapshot {lake.snapshot}: the lake has no kernels")
                echo.print_note(FIRST_ROWS)
                return
            known = placement.recognize_devices(lake.run("FROM devices").rows(), places)
        if known and dry_run:
            list_pending(known[0], name_devices(known))
            return
        if known and (idle := runs.find_idle(common.lake, module, known, selection)):
            print_tally(idle, name_devices(known))
            return
        opened = runs.open_judges(start_judges(evaluator, places, config), layout.builders)
    with opened as (judges, builders):
        if ray is None:
            _warn(cast("JudgeProcess", judges[0]))
        devices = name_devices([judge.row for judge in judges])
        if dry_run:
            list_pending(judges[0].row, devices)
            return
        with show_progress(quiet=common.quiet) as progress:
            tally = runs.run(common.lake, module, judges, builders, config, selection, progress)
    print_tally(tally, devices)
    if tally.unfit:
        sys.exit(HostUnfit.exit_code)


def check(
    file: Path,
    /,
    task: str,
    *,
    entry_point: str | None = None,
    workload: str | None = None,
    evaluator: _EvaluatorName = contract.DEFAULT,
    device: Device = "auto",
    watch: Annotated[bool, Parameter(negative="")] = False,
    format: Literal["table", "json"] = "table",
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Judge one of your own files; store nothing. Exits with 0 only if the kernel is correct.

    Examples:
      evaluators check my_kernel.py temperature_softmax
      evaluators check my_kernel.py --task my_task.py --on cpu
      evaluators check my_kernel.py --task starter/diag_matmul --format json
      evaluators check my_kernel.py --task my_task.py --entry-point softmax
      evaluators check submission.py --task ./sort_py --workload test_1
      evaluators check my_folder --task gemm.json --entry-point main:run
      evaluators check my_kernel.py --task my_task.py --axes ROWS=1,COLS=77
      evaluators check my_kernel.py --task diag_matmul --watch

    Parameters
    ----------
    file
        The kernel: a Python file, a .cu or .cpp file that binds `forward`, or a folder of such
        files.
    task
        Name or id of a task in the lake (`store query "SELECT task FROM task_names"` lists them),
        or a file or folder with a task of KernelBench, KernelBench-Hard, robust-kbench, GPU MODE's
        reference-kernels or flashinfer-bench.
    entry_point
        Class or function to judge, or MODULE:NAME in a folder (default: the class ModelNew;
        else Model or a function custom_kernel, run, solution, kernel_fn or kernel_function;
        else the one public function that takes as many arguments as the task gives).
    workload
        Name of one of the task's workloads, or the values of its axes, such as M=256,K=64
        (default: the first, or that of the device for a task in the lake).
    watch
        Judge the file again on each save, until Ctrl-C, and print one line per verdict.
    format
        Format of the verdict. json prints all rows, including raw samples.
    """
    from evaluators.timing.spreads import read_spreads

    place = placement.choose_place(device)
    task_text = read_task(task, common.lake)
    kernel = read_kernel(file, entry_point, task_text)
    if watch:
        echo.print_note(f"judging {quote_name(file.name)} now and after each save, until Ctrl-C")
    with contextlib.ExitStack() as stack:
        with echo.show_step("starting the judge", quiet=common.quiet):
            judge = stack.enter_context(JudgeProcess(evaluator, place.device, config, place.cores))
        _warn(judge)
        spreads: dict[str, float] = {}
        with contextlib.suppress(LakeNotFound), store.open(common.lake) as lake:
            spreads = read_spreads(lake, judge.row["name"], contract.load(evaluator).VERSION)
        precisions = contract.list_precisions(config, judge.row["kind"])

        def judge_kernel(kernel: KernelText) -> list[contract.Tables]:
            case = task_text.make_case(kernel, judge.row["kind"], workload)
            cases = [
                dataclasses.replace(case, spreads=spreads, precision=precision)
                for precision in precisions
            ]
            with echo.show_step(f"judging {quote_name(file.name)}", quiet=common.quiet) as tell:
                _show_parts(judge, tell)
                return [_judge_patiently(judge, case) for case in cases]

        def print_verdicts(
            kernel: KernelText, answers: Sequence[contract.Tables], *, in_one_line: bool = False
        ) -> None:
            for precision, tables in zip(precisions, answers, strict=True):
                print_verdict(
                    file,
                    judge.row,
                    tables,
                    notes=_describe_case(kernel, task_text, workload, tables),
                    spreads=spreads,
                    precision=precision if len(precisions) > 1 else None,
                    files=kernel.own_files,
                    add_command=f"evaluators add {file} --task {task}",
                    in_one_line=in_one_line,
                )

        if watch:
            _watch(
                file,
                lambda: read_kernel(file, entry_point, task_text),
                lambda kernel: print_verdicts(kernel, judge_kernel(kernel), in_one_line=True),
            )
            return
        answers = judge_kernel(kernel)
    if format == "json":
        names = dict.fromkeys(name for tables in answers for name in tables)
        echo.print_json({n: [row for t in answers for row in t.get(n, [])] for n in names})
    else:
        print_verdicts(kernel, answers)
    if any(tables["evaluations"][0]["status"] != "correct" for tables in answers):
        sys.exit(1)


@app.command
def reproduce(
    file: Path,
    /,
    *,
    code: Path | None = None,
    task: Path | None = None,
    device: Device = "auto",
    format: Literal["table", "json"] = "table",
    common: Common = _DEFAULT,
) -> None:
    """Judge the kernel of a receipt again here, and say whether this machine agrees.

    Judges the same bytes with the options of the receipt, in the sandbox, and stores nothing.
    Limits of time and memory are the defaults of `evaluators check`. The interval of a difference
    includes the errors of both machines. Exit codes: 0 agrees; 3 differs in a verdict, or in the
    speedup over eager by the clock that ranks, or the receipt does not hold; 1 cannot be compared.
    On another device model, only verdicts decide.

    Examples:
      evaluators reproduce receipt.json --code kernel.py --task task.py
      evaluators reproduce receipt.json --lake ./lake --on cuda:0

    Parameters
    ----------
    file
        What `store receipt` wrote.
    code
        File of the kernel, or the folder with its files (default: the lake's).
    task
        File with the text of the task (default: the lake's, of the first task of the receipt).
    format
        Format of the result.
    """
    from evaluators.cli import reproduction
    from store.receipts.check import read_file

    subject = reproduction.read_subject(read_file(file), code, task, common.lake)
    place = placement.choose_place(device)
    with contextlib.ExitStack() as stack:
        with echo.show_step("starting the judge", quiet=common.quiet):
            started = JudgeProcess(subject.evaluator, place.device, subject.config, place.cores)
            judge = stack.enter_context(started)
        _warn(judge)
        verdicts = subject.list_verdicts(judge.row)
        with echo.show_step("judging the kernel of the receipt", quiet=common.quiet) as tell:
            _show_parts(judge, tell)
            cases = map(subject.make_case, verdicts)
            answers = [_judge_patiently(judge, case) for case in cases]
        device_row = judge.row
    done = reproduction.compare(subject, device_row, verdicts, answers)
    if format == "json":
        echo.print_json(dataclasses.asdict(done) | {"agrees": done.agrees})
    else:
        for line in reproduction.format_lines(done):
            echo.print_result(line)
    if not done.agrees:
        sys.exit(3)


def _show_parts(judge: JudgeProcess, tell: Callable[[str], None]) -> None:
    from evaluators.cli import verdict_text

    judge.on_part = lambda part: tell(verdict_text.PARTS.get(part, part))


def print_verdict(
    file: Path,
    device: Mapping[str, Any],
    tables: contract.Tables,
    *,
    spreads: Mapping[str, float],
    precision: str | None,
    **details: Any,
) -> None:
    """Print the verdict on a file.

    Args:
        file: Where the kernel is.
        device: The row of the device.
        tables: The rows of the verdict.
        spreads: Spread of sessions by clock; the fallbacks of the kind of device complete it.
        precision: Names the verdict, if the kernel was judged by several.
        details: Further arguments of `verdict_text.format_lines`.
    """
    from evaluators.cli import verdict_text
    from evaluators.timing.intervals import read_fallback_spreads

    spreads = {**read_fallback_spreads(device["kind"]), **spreads}
    device_name = device["name"]
    if device["kind"] == "cpu":
        threads = placement.count_threads(device["cores"])
        device_name += f" with {echo.count_nouns(threads, 'thread')}"
    if precision is not None:
        device_name += f" by {precision}"
    for line in verdict_text.format_lines(
        file.name,
        device_name,
        tables,
        spreads=spreads,
        color=echo.has_colors(sys.stdout),
        width=echo.terminal_width(sys.stdout),
        **details,
    ):
        echo.print_painted(line)


def _watch(file: Path, read: Callable[[], KernelText], judge: Callable[[KernelText], None]) -> None:
    """Judge a file or folder now and after each save, until Ctrl-C."""

    def read_times() -> dict[Path, int]:
        with contextlib.suppress(OSError):  # it is just being replaced
            paths = [file, *(file.rglob("*") if file.is_dir() else ())]
            return {path: path.stat().st_mtime_ns for path in paths}
        return {}

    try:
        while True:
            times = read_times()
            try:
                judge(read())
            except FlywheelError as error:  # of this save
                echo.print_error(error)
            sys.stdout.flush()
            while read_times() in (times, {}):
                time.sleep(_WATCH_S)
    except KeyboardInterrupt:
        interrupts.dismiss()


def add(
    file: Path,
    /,
    task: str,
    *,
    entry_point: str | None = None,
    author: AuthorOption = "local",
    evaluator: _EvaluatorName = contract.DEFAULT,
    device: Device = "auto",
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Store one of your own files as a kernel of a task of the lake, and judge it.

    A kernel that is stored already is not stored again, and one with a verdict on this device is
    not judged again. The exit code is 0 whatever the verdict says.

    Examples:
      evaluators add my_kernel.py --task diag_matmul
      evaluators add my_kernel.cu --task pairwise_distance --author alice

    Parameters
    ----------
    file
        The kernel, as for `evaluators check`.
    task
        Name or id of a task in the lake (`store query "SELECT task FROM task_names"` lists them).
    entry_point
        Class or function to judge, as for `evaluators check`.
    author
        Who wrote the kernel.
    """
    from evaluators.scheduling import run as runs
    from evaluators.timing.spreads import read_spreads
    from store.importers.reading import pieces

    store.Location.of(common.lake).require()
    place, module = placement.choose_place(device), contract.load(evaluator)
    with store.writer(common.lake, author="evaluators add") as writer:
        with writer.reader() as lake:
            task_id = str(store.find_task(lake, task)["task_id"])
            kernel = read_kernel(file, entry_point, read_task(task_id, common.lake))
            # A single Python file has the path by which imports store it: the same kernel.
            path = pieces.ENTRY_PATH if file.suffix == ".py" else kernel.path
            files = {**dict(kernel.other_files), path: kernel.code}
            if any("\0" in text or text != store.clean_text(text) for text in files.values()):
                raise FlywheelError(f"{file} is not a text in UTF-8", "Save it as UTF-8.")
            kernel_id = store.ids.kernel_id(files, path, kernel.entry_point)

            origin = pieces.TaskOrigin(task=task_id)
            reading = pieces.Import(lake, "evaluators-add", origin, namespace=author)
            rows = reading.start(store.ids.content_id(kernel_id, author))
            rows.add_kernel(files, entry_path=path, entry_point=kernel.entry_point)
            rows.add_attempt(
                [task_id, kernel_id],
                policy=author,
                policy_kind="person",
                task_id=task_id,
                kernel_id=kernel_id,
            )
            bundle = reading.finish(rows, f"add {file.name}", file.name)
        if bundle.tables:
            writer.append_all([bundle])
    precisions = contract.list_precisions(config, "cuda")
    selection = runs.Selection(kernel=kernel_id, precisions=tuple(precisions))
    verdicts: list[contract.Tables] = []
    opened = runs.open_judges(start_judges(evaluator, [place], config))
    with (
        echo.show_step("starting the judge", quiet=common.quiet) as tell,
        opened as (judges, builders),
    ):
        judge = cast("JudgeProcess", judges[0])
        _warn(judge)
        _show_parts(judge, tell)
        skip, keep = echo.ignore_progress, verdicts.append
        tally = runs.run(common.lake, module, judges, builders, config, selection, skip, keep)
        device_row = judge.row
    with store.open(common.lake) as lake:
        spreads = read_spreads(lake, device_row["name"], module.VERSION)
    for tables in verdicts:
        precision = tables["evaluations"][0].get("precision") if len(verdicts) > 1 else None
        own_files = kernel.own_files if path == kernel.path else files
        print_verdict(
            file, device_row, tables, spreads=spreads, precision=precision, files=own_files
        )
    print_tally(tally, device_row["name"])
    echo.print_note(f"`store show {kernel_id[:12]}` shows all that the lake knows about it.")


def _describe_case(
    kernel: KernelText, task: TaskText, workload: str | None, tables: contract.Tables
) -> list[str]:
    """Return what was judged, where the file or the task leaves a choice, and by which rule."""
    notes: list[str] = []
    if tables["evaluations"][0]["reason"] == "no_entry_point":
        names = ", ".join(entry_points.list_names(kernel.code)[:_MOST_NAMES]) or "nothing"
        notes.append(f"it defines {names}; name the class or function with --entry-point NAME")
    elif kernel.entry_point != entry_points.DEFAULT:
        notes.append(f"entry point: {kernel.entry_point}")
    if task.file is not None and task.axes:
        chosen = workload or next(iter(task.axes))
        others = f" of {len(task.axes)} (--workload NAME)" if len(task.axes) > 1 else ""
        notes.append(f"workload: {chosen}{others}")
    if task.file is not None and task.file.rule is not None:
        notes.append(f"judged by {task.file.rule}")
    return notes


def _judge_patiently(judge: JudgeProcess, case: Case) -> contract.Tables:
    """Return the rows of a case; where the judge process is lost, start another one once."""
    try:
        return judge.judge(case)
    except SandboxFailed as failed:
        log.warning("judging again: %.300s", failed.message)
        judge.restart()
    try:
        return judge.judge(case)
    except SandboxFailed as failed:
        return judge.build_fault(case, failed.message)


def _bind_options(command: Callable[..., None], module: Evaluator) -> Callable[..., None]:
    """Return a command whose options `config` are the fields of an evaluator's Config.

    Raises FlywheelError where a field has the name of another option.
    """
    signature = inspect.signature(command)
    options = {*signature.parameters, *vars(_DEFAULT), "on"}
    name = contract.name_of(module)
    for field in dataclasses.fields(module.Config()):
        if field.name in options:
            raise FlywheelError(
                f'Config.{field.name} of evaluator "{name}" has the name of'
                f" another option of `evaluators {command.__name__}`",
                "Rename the field.",
            )

    @functools.wraps(command)
    def bound(*arguments: Any, **keywords: Any) -> None:
        command(*arguments, **defaults | keywords)

    defaults = {"evaluator": name, "config": module.Config()}
    parameters = [
        each.replace(default=defaults.get(each.name, each.default))
        for each in signature.parameters.values()
    ]
    bound.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    config = Annotated[module.Config, Parameter(name="*")]
    bound.__annotations__ = {**command.__annotations__, "config": config}
    return bound


def _warn(judge: JudgeProcess) -> None:
    """Print once which walls this machine cannot enforce."""

    text = walls.format_warning(judge.read_walls()[0])
    if text is not None:
        echo.print_note(text)


def serve(
    *,
    evaluator: _EvaluatorName = contract.DEFAULT,
    host: str = "127.0.0.1",
    port: _Port = 8770,
    device: Devices = "auto",
    workers: _Workers = 1,
    ray: _RayAddress = None,
    queue: Count = 10_000,
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Judge kernels that clients send over HTTP, and append every verdict to the lake.

    The queue is durable: a killed server or judge loses nothing. SIGTERM and Ctrl-C finish
    what is being judged; what waits is judged after the next start. With --ray, the GPUs of a
    cluster judge.

    Examples:
      evaluators serve
      evaluators serve --on cuda:0,cuda:1 --port 9000
      evaluators serve --host 0.0.0.0 --ray auto

    Parameters
    ----------
    host
        Address to listen on. Addresses that other machines can reach need tokens.
    port
        Port to listen on; 0 takes a free one.
    queue
        Number of judgments that may wait before clients get 429.
    """
    faults.require_packages("starlette", "uvicorn")
    from evaluators.service import server

    contract.get_precision(config)
    if getattr(config, "protocol", "full") != "full":
        raise FlywheelError("a judge service judges by the full protocol", "Leave out --protocol.")
    server.serve(
        store.Location.of(common.lake),
        contract.load(evaluator),
        config,
        host=host,
        port=port,
        device=device,
        workers=workers,
        ray=ray,
        queue_limit=queue,
    )


def mcp(
    *,
    evaluator: _EvaluatorName = contract.DEFAULT,
    device: Devices = "auto",
    workers: _Workers = 1,
    address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Serve the tools of `store mcp`, and tools that submit kernels to the judge.

    Every kernel that an agent submits is stored as an attempt with its author, session and
    parent, and judged on this machine in the sandbox of `evaluators run`. An MCP client starts
    the command and talks to it over stdio; with --port it serves streamable HTTP. docs/mcp.md
    has examples.

    Examples:
      evaluators mcp
      evaluators mcp --on cuda:0
      FLYWHEEL_MCP_TOKEN=SECRET evaluators mcp --host 0.0.0.0 --port 8766
    """
    from evaluators.scheduling.pool import Pool
    from evaluators.submissions.attempts import JudgeTools

    def build(desk: LakeTools) -> MCPServer[Any]:
        return serving.build_server(desk, (*serving.READING_ROOMS, contract.ROOM))

    def make_pool() -> Pool:
        return Pool(common.lake, device, config, evaluator=evaluator, workers=workers)

    contract.get_precision(config)
    desk = JudgeTools(
        store.Location.of(common.lake),
        AgentLimits(),
        make_pool,
        {"evaluator": evaluator, "device": device, "config": dataclasses.asdict(config)},
    )
    serving.serve(desk, build, address)


@dataclass(frozen=True)
class EvaluatorCommand(members.Group):
    """A command with the options of the evaluator that the arguments name."""

    verb: str
    """Name of the command."""

    def fill(self, argv: Sequence[str]) -> None:
        """Replace the command by that of the evaluator that the arguments name.

        Raises what `contract.load` raises.
        """
        if self.verb in argv:
            name = members.find_option(argv, "--evaluator") or contract.DEFAULT
            command = self.command(members.find_member(contract.ROOM, name))
            del self.app[self.verb]
            self.app.command(command, name=self.verb)


groups: list[EvaluatorCommand] = []
"""What replaces the commands with the options of the default evaluator."""
for each in (run, check, add, mcp, serve):
    app.command(_bind_options(each, contract.load_default()))

    def _load(member: Member, command: Callable[..., None] = each) -> Callable[..., None]:
        return _bind_options(command, contract.load(member.name))

    groups.append(EvaluatorCommand(app, contract.ROOM, _load, verb=each.__name__))

token = App(name="token", help="Create, list and revoke the tokens of a judge service.")
app.command(token)


@token.command
def create(client: str, /, *, scope: list[str], common: Common = _DEFAULT) -> None:
    """Create a token and print it once; only its hash is stored.

    Examples:
      evaluators token create trainer --scope judge

    Parameters
    ----------
    client
        Name of its holder. Holders take turns at the judges, however many kernels each has.
    scope
        read (look up judgments and tasks), judge (also submit), admin (everything). Repeat the
        option for several.
    """
    from evaluators.service import queue

    echo.print_result(queue.create_token(_open(common), client, queue.check_scopes(scope)))


@token.command(name="list")
def list_(*, format: ListFormat = "table", common: Common = _DEFAULT) -> None:
    """List the tokens: their clients, scopes and dates."""

    import pyarrow as pa

    from evaluators.service import queue

    rows = [
        row | {"created_at": datetime.fromtimestamp(int(row["created_at"]), UTC).isoformat()}
        for row in queue.list_tokens(_open(common))
    ]
    schema = pa.schema([(name, pa.string()) for name in ("client", "scopes", "created_at")])
    display.write_rows(pa.Table.from_pylist(rows, schema=schema), format)


@token.command
def revoke(client: str, /, *, common: Common = _DEFAULT) -> None:
    """Revoke a token. The server refuses it from now on.

    Parameters
    ----------
    client
        Name of its holder.
    """
    from evaluators.service import queue

    queue.revoke_token(_open(common), client)
    echo.print_result(f"the token of {client} is revoked")


def _open(common: Common) -> Any:
    from evaluators.service.queue import Database

    location = store.Location.of(common.lake)
    location.require()
    return Database(location)


_CLOCK_CONFIG = Config(
    calls=2, robustness=False, diagnosis=False, draw_shapes=0, baselines=("eager",), blocks=20
)
_CLOCK_TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(256)]


def get_init_inputs():
    return []
"""
_SHORT_MS = 0.1
"""A clock that cannot time a call of this length is not fit for most kernels."""


@app.command
def doctor(
    *,
    limits: Annotated[bool, Parameter(negative="")] = False,
    device: Device = "auto",
    format: ListFormat = "table",
    common: Common = _DEFAULT,
) -> None:
    """Test this host: compilers, space, memory, sandbox mechanisms, and what its clocks resolve.

    A kernel that needs what this host lacks gets no verdict. Each verdict stores which sandbox
    mechanisms held, in the columns sandbox_level and sandbox_missing of evaluations. A short
    session times an empty call by every clock. A clock works if it can time a call of 0.1 ms.

    Examples:
      evaluators doctor
      evaluators doctor --on cpu --format json
      evaluators doctor --limits

    Parameters
    ----------
    limits
        Instead, list the kinds of tasks and kernels that the judge cannot judge. A verdict that
        refuses one names its limit.
    """
    if limits:
        if format != "table":
            rows = [
                {"limit": name, "cannot_judge": limit.sentence, "cause": limit.cause}
                for name, limit in kinds.LIMITS.items()
            ]
            _write_rows(rows, format)
            return
        for line in kinds.format_lines(echo.terminal_width(sys.stdout)):
            echo.print_result(line)
        return

    place = placement.choose_place(device)
    rows = [
        vars(fact) | ({"follows": None, "mend": None} if fact.holds else {})
        for fact in host.list_facts("cpu" if place.device == "cpu" else "cuda")
    ]
    unfit: HostUnfit | None = None
    name = place.device
    try:
        with JudgeProcess(contract.DEFAULT, place.device, _CLOCK_CONFIG, place.cores) as judge:
            rows += walls.describe_walls(*judge.read_walls())
            name = judge.row["name"]
            rows += _describe_clocks(judge)
    except HostUnfit as error:
        unfit = error
    if format != "table":
        _write_rows(rows, format)
    else:
        for line in walls.format_lines(rows):
            echo.print_result(escape_terminal(line))
        absent = sum(not row["holds"] for row in rows)
        echo.print_result(f"{len(rows) - absent} of {len(rows)} work on {name}")
    if unfit is not None:
        raise unfit


def _write_rows(rows: list[dict[str, Any]], format: str) -> None:
    import pyarrow as pa

    display.write_rows(pa.Table.from_pylist(rows), format)


def _describe_clocks(judge: JudgeProcess) -> list[dict[str, Any]]:
    """Return a row for each clock: what, holds, state, follows and mend, as the doctor prints.

    The session times a module of one small operation, so samples have as many calls as they can.
    The empty arm's scatter gives the resolution.

    judge: A process of the evaluator `judge` with `_CLOCK_CONFIG`.
    """

    def describe(what: str, holds: bool, state: str) -> dict[str, Any]:
        follows = None if holds else "a kernel of 0.1 ms has a bound for a time, or none"
        mend = None if holds else "End other work on this host, or judge on another one."
        return {"what": what, "holds": holds, "state": state, "follows": follows, "mend": mend}

    code = _CLOCK_TASK.replace("class Model(", "class ModelNew(")
    kernel = KernelText(code=code, path="kernel.py", entry_point="ModelNew", is_class=True)
    case = TaskText(code=_CLOCK_TASK, axes={}).make_case(kernel, judge.row["kind"], None)
    tables = judge.judge(dataclasses.replace(case, precision="torch_default"))
    [evaluation] = tables["evaluations"]
    by_clock = {row["clock"]: row for row in tables["timings"] if row["arm"] == "kernel"}
    if not by_clock:
        why = evaluation["message"] or evaluation["reason"]
        return [describe("timing", False, f"failed: {why}")]
    shared = "; other work shares this host" if "contended" in evaluation["flags"] else ""
    facts: list[dict[str, Any]] = []
    for clock, row in by_clock.items():
        shortest_ms = RESOLVED * row["resolution_ms"]
        calls = f"{row['inner_loops']} call{'s' * (row['inner_loops'] > 1)}"
        state = (
            f"resolves {1e3 * row['resolution_ms']:.3g} µs with {calls} a sample; the shortest call"
            f" that it tells from nothing takes {1e3 * shortest_ms:.3g} µs{shared}"
        )
        facts.append(describe(f"{clock} clock", shortest_ms <= _SHORT_MS, state))
    return facts


@app.command
def tasks(
    *,
    task: Annotated[str | None, Parameter(show_default=False)] = None,
    device: Devices = "auto",
    workers: Count = 1,
    task_s: float = 600.0,
    common: Common = _DEFAULT,
) -> None:
    """Find trivial tasks: an answer without their inputs passes. Verdicts get the flag weak_task.

    Each result is committed to the table task_audits immediately. You can interrupt the command at
    any time and run it again to resume; it tries tasks again that could not be run, such as those
    that are too large for the memory. Each version of the audit tests a task once per kind of
    device. Rankings and tables leave trivial tasks out.

    Examples:
      evaluators tasks
      evaluators tasks --task diag_matmul --on cpu
      evaluators tasks --on cuda --workers 4 --task-s 120

    Parameters
    ----------
    task
        Audit only the tasks with this name, or whose id begins with these 6 or more characters.
    workers
        Number of tasks that are audited side by side, on the CPU or on each GPU. They share its
        memory.
    task_s
        Time limit in seconds for a task.
    """
    from evaluators.scheduling import task_audits

    def report(result: task_audits.Result, number: int, of: int) -> None:
        if result.row is None:
            state = f"cannot be run: {escape_terminal(result.why[:120])}"
        else:
            state = "trivial" if result.row["weak"] else "not trivial"
        done = f"{number} of {of}"
        echo.print_note(f"{done:10} {quote_name(result.name):28} {state}, {result.seconds:.1f} s")

    places = placement.divide_machine(device, workers).places
    with store.open(common.lake) as lake:  # refuse a missing lake before torch is loaded
        known = placement.recognize_devices(lake.run("FROM devices").rows(), places)
        if known and not task_audits.find_pending(lake, known[0], task):
            echo.print_result(f"0 tasks pending on {known[0]['name']} at snapshot {lake.snapshot}")
            return
    with start_judges(None, places) as auditors:
        for auditor in auditors:
            auditor.wait_ready()
        silent = {} if common.quiet else {"report": report}
        tally = task_audits.run(common.lake, auditors, task, task_s, **silent)
        machine = auditors[0].row["name"]
    if not tally.audited and not tally.failed:
        echo.print_result(f"0 tasks pending on {machine} at snapshot {tally.snapshot}")
        return
    for name, passes in tally.weak.items():
        echo.print_note(f"trivial: {quote_name(name):28} {', '.join(passes)}")
    for name, why in tally.failed.items():
        echo.print_note(f"cannot be run: {quote_name(name)}")
        echo.print_foreign(why, sys.stderr)
    echo.print_result(str(tally))


@app.command
def spread(
    *,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    format: ListFormat = "table",
    common: Common = _DEFAULT,
) -> None:
    """Estimate how far speedups differ between sessions. It is part of every interval from then on.

    The estimates come from kernels with several sessions that count: one for each device model,
    clock and version of the evaluator. Each is appended to the table session_spreads. Queries of
    earlier snapshots keep their intervals. sessions_for_1_percent is the number of sessions of a
    kernel after which the interval of its speedup is 1 % wide on each side (view current_spreads).

    Examples:
      evaluators spread --dry-run
      evaluators spread

    Parameters
    ----------
    dry_run
        Print the estimates; append nothing.
    """
    from evaluators.timing import spreads

    with store.open(common.lake) as lake:
        rows = spreads.estimate_spreads(lake)
    estimates = [row for row in rows if row["tau"] is not None]
    for row in rows:
        if row["tau"] is None:
            echo.print_note(
                f"{quote_name(row['device'])}, {row['clock']}: {row['pairs']} pairs of sessions are"
                f" too few for an estimate, which needs {spreads.LEAST_PAIRS}"
            )
    if not estimates:
        raise FlywheelError(
            "no device model has enough kernels with repeated sessions that count",
            f"An estimate needs {spreads.LEAST_PAIRS} pairs of sessions of the same kernel by one"
            " clock, such as those of surprising wins or of several hosts that judge the same"
            " kernels. Until then, intervals use the figures of the view fallback_spreads.",
        )
    if dry_run:
        _write_rows([{**row, "spread_id": None} for row in estimates], format)
        return
    with store.writer(common.lake, author="evaluators spread") as writer:
        snapshot = writer.append({"session_spreads": estimates}, "spread of sessions")
        with writer.reader() as lake:
            _write_rows(lake.run("FROM current_spreads").rows(), format)
    if format == "table":
        echo.print_result(f"session_spreads +{len(estimates)} → snapshot {snapshot}")


@app.command
def audit(
    *,
    detector: str | None = None,
    where: str | None = None,
    limit: Count | None = None,
    llm: str | None = None,
    model: str | None = None,
    key_env: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Search all stored kernels for signs of cheating; list the datasets that contain suspects.

    Each version of a detector searches a kernel once. After you add or change a detector, run this
    command again to search old kernels. A finding is not a verdict: confirm it with `evaluators
    quarantine`. You can interrupt the command at any time and run it again to resume.

    Examples:
      evaluators audit
      evaluators audit --detector result-caching --where "policy_id = 'starter'"
      evaluators audit --llm http://localhost:8000/v1 --model NAME --limit 20

    Parameters
    ----------
    detector
        Run only this detector (a file of evaluators/detectors or ./flywheel/detectors).
    where
        Search only kernels for which this SQL condition is true. It can use the columns of kernels,
        and policy_id and task_name.
    limit
        Search at most N kernels (with --llm, default: 50).
    llm
        Base URL of an OpenAI-compatible endpoint. Its model checks only surprising wins: speedups
        above 3x, or above twice that of the best other kernel of the task.
    model
        Name of the endpoint's model.
    key_env
        Environment variable with the key of an endpoint, as HOST=NAME or HOST:PORT=NAME. HOST
        alone means the default port (443 for https, 80 for http). https://api.openai.com gets
        OPENAI_API_KEY; other endpoints get no key unless you name them here.
    format
        Format of the list of datasets.
    """
    from evaluators.audit import detect, sweep

    if (llm is None) != (model is None):
        raise FlywheelError("--llm and --model belong together", "Give both, or neither.")
    if key_env and llm is None:
        raise FlywheelError(
            "--key-env needs an endpoint", "Name the endpoint with --llm and --model."
        )
    store.Location.of(common.lake).require()
    if llm is not None and model is not None:
        from evaluators.audit import language_model

        done = language_model.ask_about_wins(
            common.lake,
            llm,
            model,
            key_env=key_env or (),
            where=where,
            limit=limit or language_model.MOST_WINS,
        )
        echo.print_note(str(done))
        names = [f"llm:{model}"]
    else:
        with show_progress(quiet=common.quiet) as progress:
            done = sweep.sweep(
                common.lake, detector=detector, where=where, limit=limit, progress=progress
            )
        names = [one.name for one in detect.choose_detectors(detector)] + [detect.UNREADABLE]
        if done.kernels:
            rate = done.kernels / done.seconds
            echo.print_note(f"{done.kernels} kernels in {done.seconds:.1f} s, {rate:.0f} kernels/s")
    with store.open(common.lake) as lake:
        if done.run_id is not None and format == "table":
            display.print_table(sweep.count_by_class(lake, done.run_id, names), sys.stderr)
        holding = sweep.find_marked_datasets(lake)
    if holding.num_rows or format != "table":
        display.write_rows(holding, format)
    elif done.kernels:
        echo.print_note("no dataset contains a suspect kernel")
    if format == "table":
        echo.print_result(
            f"{done.kernels} kernels searched, findings +{done.findings} → snapshot {done.snapshot}"
        )


@app.command
def findings(
    kernel: str | None = None,
    /,
    *,
    format: ListFormat = "table",
    common: Common = _DEFAULT,
) -> None:
    """List findings with line, quote and decision, undecided ones first.

    Examples:
      evaluators findings
      evaluators findings 72765f --format json

    Parameters
    ----------
    kernel
        List only the findings on the kernel with this id, or the finding with this id. A prefix is
        enough.
    """
    from evaluators.audit import sweep

    with store.open(common.lake) as lake:
        keys = ("finding_id", "kernel_id", "class", "line", "decision", "quote")
        display.write_rows(sweep.list_findings(lake, kernel), format, keys=keys)
        faults = sweep.find_host_faults(lake).num_rows
    if faults:
        echo.print_note(
            f"{faults} verdicts show a fault of their host, not of a kernel: evaluators withdraw"
        )


@app.command
def quarantine(identity: str, /, *, why: str, common: Common = _DEFAULT) -> None:
    """Confirm a finding, or report a kernel: new datasets and rankings leave the kernel out.

    Examples:
      evaluators quarantine 72765f --why "returns the answer of its first call"

    Parameters
    ----------
    identity
        Id of a finding or of a kernel, or a prefix of it.
    why
        Reason, which is stored with the decision.
    """
    _decide(identity, "confirmed", why, common)


@app.command
def dismiss(identity: str, /, *, why: str, common: Common = _DEFAULT) -> None:
    """Dismiss a finding.

    A kernel leaves quarantine when all of its confirmed findings are dismissed. A copy of a
    quarantined kernel leaves it when all findings on the copy are dismissed.

    Examples:
      evaluators dismiss 72765f --why "the cache is emptied before every call"

    Parameters
    ----------
    identity
        Id of a finding, or a prefix of it.
    why
        Reason, which is stored with the decision.
    """
    _decide(identity, "dismissed", why, common)


@app.command
def withdraw(
    *, yes: Annotated[bool, Parameter(negative="")] = False, common: Common = _DEFAULT
) -> None:
    """Withdraw verdicts that a fault of their host decided, such as a missing compiler.

    The command lists them and asks first. It appends rows that name the verdicts and changes none:
    views and rankings leave them out, and `evaluators run` judges the kernels again.

    Examples:
      evaluators withdraw
      evaluators withdraw --yes

    Parameters
    ----------
    yes
        Withdraw the listed verdicts without asking.
    """
    from evaluators.audit import sweep

    store.Location.of(common.lake).require()
    with store.open(common.lake) as lake:
        faults = sweep.find_host_faults(lake)
        snapshot = lake.snapshot
    if not faults.num_rows:
        echo.print_result(f"no verdict shows a fault of its host at snapshot {snapshot}")
        return
    display.print_table(faults.select(sweep.SHOWN), sys.stderr)
    if not yes and not sys.stdin.isatty():
        raise FlywheelError(
            f"{faults.num_rows} verdicts would be withdrawn, and there is no terminal to ask on",
            "Nothing was withdrawn. Add --yes to withdraw them.",
        )
    if not yes and input(f"Withdraw these {faults.num_rows} verdicts? [y/N] ").lower() not in (
        "y",
        "yes",
    ):
        raise FlywheelError("nothing was withdrawn", "Answer y to withdraw the verdicts.")
    snapshot = sweep.withdraw(common.lake, faults)
    echo.print_result(f"withdrew {faults.num_rows} verdicts → snapshot {snapshot}")


def _decide(identity: str, decision: str, why: str, common: Common) -> None:
    from evaluators.audit import sweep

    store.Location.of(common.lake).require()
    finding_id, kernel_id, snapshot = sweep.decide(common.lake, identity, decision, why)
    with store.open(common.lake) as lake:
        held = lake.run(
            "SELECT kernel_id FROM quarantined WHERE kernel_id = $kernel_id",
            {"kernel_id": kernel_id},
        ).one()
        holding = sweep.find_marked_datasets(lake, kernel_id)
    if held is not None and holding.num_rows:
        echo.print_note("datasets that contain the kernel:")
        display.print_table(holding, sys.stderr)
    state = "quarantined" if held is not None else "not quarantined"
    echo.print_result(
        f"{decision} finding {finding_id[:12]}: kernel {kernel_id[:12]} is {state}"
        f" → snapshot {snapshot}"
    )


@app.command
def diagnose(
    kernel: str | None = None,
    /,
    *,
    top: int = 10,
    tool: Literal["ncu", "sanitizer"] = "ncu",
    device: DeviceOption = "auto",
    common: Common = _DEFAULT,
) -> None:
    """Run Nsight Compute or compute-sanitizer on the fastest kernels of a GPU.

    ncu writes analyses; sanitizer (memcheck and initcheck) writes findings of class memory_error.
    Every verdict already has an analysis by torch's profiler. These tools take longer and report
    more.

    Examples:
      evaluators diagnose --top 3
      evaluators diagnose 82db91 --tool sanitizer --on cuda:1

    Parameters
    ----------
    kernel
        Examine only the kernel with this id, or an unambiguous prefix of it.
    top
        Examine the N kernels with the largest speedups over eager.
    tool
        Tool to run.
    device
        GPU such as cuda:0; auto and cuda mean the first GPU.
    """

    nvidia_tools.find_program(tool)
    store.Location.of(common.lake).require()
    place = placement.choose_place(device)
    with store.writer(common.lake, author="evaluators diagnose") as writer:
        with writer.reader() as lake:
            wanted = None if kernel is None else store.find_kernel(lake, kernel)
        with JudgeProcess(None, place.device, cores=place.cores) as judge:
            if judge.row["kind"] != "cuda":
                raise DeviceUnavailable(
                    "evaluators diagnose needs a GPU, and this device is the CPU",
                    "Give a GPU, such as --on cuda:0.",
                )
            with writer.reader() as lake:
                parameters = {"device": judge.row["name"], "kernel": wanted, "top": top}
                query = read_sql(__file__, "fastest_kernels")
                kernels = lake.run(query, parameters).arrow()
                evaluated = {
                    row["kernel_id"]: row["evaluation_id"]
                    for row in kernels.select(["kernel_id", "evaluation_id"]).to_pylist()
                }
                cases = list(read_cases(lake, kernels, judge.row["name"]))
                snapshot = lake.snapshot
            if not cases:
                name = judge.row["name"]
                raise UnknownName(
                    f"the lake has no ranked kernel on {name}"
                    if wanted is None
                    else f"kernel {wanted[:12]} is not ranked on {name}",
                    "Judge some first: evaluators run",
                )
            failed = written = 0
            for case in cases:
                name = f"{quote_name(case.path)} {case.kernel_id[:8]}"
                try:
                    tables = judge.run_tool(case, tool)
                except SandboxFailed as error:
                    failed += 1
                    echo.print_note(f"{name} could not be examined:")
                    echo.print_foreign(str(error), sys.stderr)
                    continue
                rows = sum(map(len, tables.values()))
                written += rows
                for row in tables["analyses"]:
                    row["evaluation_id"] = evaluated[case.kernel_id]
                    echo.print_note(f"{name}: {row['bottleneck']}")
                for row in tables["findings"]:
                    echo.print_note(f"{name}:")
                    echo.print_foreign(row["quote"], sys.stderr)
                if rows:
                    writer.append(tables, message=f"{tool} {case.kernel_id[:12]}", wait=False)
        if written:
            snapshot = writer.flush()
    examined = f"{len(cases) - failed} of {len(cases)} kernels examined by {tool}"
    echo.print_result(f"{examined}, rows +{written} → snapshot {snapshot}")


def main() -> None:
    """Run the `evaluators` command."""
    members.run(app, *groups)
