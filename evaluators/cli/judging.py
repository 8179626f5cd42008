"""Commands that judge with one evaluator, whose options they take, and the tokens of `serve`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from cyclopts import App, Parameter
from cyclopts.validators import Number

from evaluators.cli.findings import Device, Devices, ListFormat
from evaluators.scheduling import contract
from evaluators.scheduling.contract import Evaluator
from store.code import entry_points
from store.commandline import echo, members
from store.commandline.escape import quote_name
from store.commandline.members import Common, Count, DeviceOption, Member
from store.commandline.progress import show_progress
from store.errors import FlywheelError, HostUnfit, LakeNotFound, SandboxFailed
from store.mcp.serving import Address, AgentLimits

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from evaluators.judging.case import Case
    from evaluators.scheduling.cases import KernelText, TaskText
    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.scheduling.run import Tally
    from store.mcp.lake_tools import LakeTools


_LISTED = 10
"""Kernels that `run --dry-run` lists."""


def count_nouns(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count_nouns(1, "kernel"), count_nouns(2, "kernel")
    ('1 kernel', '2 kernels')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


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
        kernels = count_nouns(tally.held_by_others, "kernel")
        echo.print_note(f"another run is judging {kernels}, which {be} left to it")
    for why, number in tally.unfit.items():
        stay = "stays" if number == 1 else "stay"
        echo.print_note(f"{count_nouns(number, 'kernel')} {stay} pending: {why}")
    if not tally.evaluations and not tally.unfit:
        echo.print_result(f"0 pending on {devices} at snapshot {tally.snapshot}")
        return
    if tally.statuses:
        statuses = (f"{status} {n}" for status, n in sorted(tally.statuses.items()))
        echo.print_note("  ".join(statuses))
    if tally.contended:
        do = "does" if tally.contended == 1 else "do"
        echo.print_note(
            f"{count_nouns(tally.contended, 'kernel')} ran while this host did other work and"
            f" {do} not rank. Measure again on a quiet machine: evaluators run --contended"
        )
    if tally.unranked:
        do = "does" if tally.unranked == 1 else "do"
        echo.print_note(
            f"{count_nouns(tally.unranked, 'kernel')} {do} not rank by any clock."
            ' store query "FROM unranked_sessions" says why.'
        )
    echo.print_result(str(tally))


_DEFAULT = Common()
_ADDRESS = Address()
_EvaluatorName: TypeAlias = Annotated[
    str,
    Parameter(help="Name of the evaluator (`evaluators list`). Add --help to list its options."),
]
_Workers: TypeAlias = Annotated[
    int,
    Parameter(help="Number of judges on the CPU or on each GPU, each with its own cores."),
]
_RayAddress: TypeAlias = Annotated[
    str | None,
    Parameter(
        help="Address of a Ray cluster (auto, HOST:PORT, ray://HOST:PORT). It runs one judge per"
        " GPU, or --workers judges with --on cpu."
    ),
]
_Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))]


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
    import store
    from evaluators.scheduling.pool import Pool
    from evaluators.submissions.attempts import JudgeTools
    from store.mcp.server import READING_ROOMS, build_server
    from store.mcp.serving import serve

    def build(desk: LakeTools) -> MCPServer[Any]:
        return build_server(desk, (*READING_ROOMS, contract.ROOM))

    def make_pool() -> Pool:
        return Pool(common.lake, device, config, evaluator=evaluator, workers=workers)

    contract.get_policy(config)
    desk = JudgeTools(
        store.Location.of(common.lake),
        AgentLimits(),
        make_pool,
        {"evaluator": evaluator, "device": device, "config": dataclasses.asdict(config)},
    )
    serve(desk, build, address)


log = logging.getLogger(__name__)

_MOST_NAMES = 12


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


def add_to(app: App) -> list[EvaluatorCommand]:
    """Add the commands with the options of the default evaluator; return what replaces these."""
    token = App(name="token", help="Create, list and revoke the tokens of a judge service.")
    for command in (create, list_, revoke):
        token.command(command, name=command.__name__.strip("_"))
    app.command(token)
    commands: list[EvaluatorCommand] = []
    for command in (run, check, mcp, serve):
        app.command(_bind_options(command, contract.load_default()))

        def load_command(
            member: Member, command: Callable[..., None] = command
        ) -> Callable[..., None]:
            return _bind_options(command, contract.load(member.name))

        commands.append(EvaluatorCommand(app, contract.ROOM, load_command, verb=command.__name__))
    return commands


def run(
    *,
    evaluator: _EvaluatorName = contract.DEFAULT,
    kernel: str | None = None,
    where: str | None = None,
    suite: str | None = None,
    device: DeviceOption = "auto",
    workers: int = 1,
    ray: _RayAddress = None,
    limit: Count | None = None,
    contended: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Judge the kernels that have no verdict of this evaluator version on these devices.

    On a GPU, each kernel gets a verdict under each --policy. Verdicts of other hosts with the
    same GPU model and software count. Each result is appended at once, so an interrupted run
    can be run again.

    Examples:
      evaluators run
      evaluators run --suite starter --on cuda --limit 100
      evaluators run --on cuda:0 --where "task_name LIKE '%softmax%'"
      evaluators run --policy torch_default --policy fp32_strict
      evaluators run --contended --dry-run
      evaluators run --suite starter --draw-shapes 5
      evaluators run --kernel 82df3c --axes ROWS=1 --axes ROWS=1000,COLS=77

    Parameters
    ----------
    kernel
        Judge only the kernel with this id prefix.
    where
        Judge only rows for which this SQL condition is true. Columns: kernel_id, task_id,
        workload_id, axes, compiles, policy, suite, level, task_name, path.
    suite
        Judge only the tasks of this suite (default: every suite of the lake).
    device
        cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the CPU
        if there is none. Spare cores compile kernels ahead for GPUs.
    workers
        Number of judges on the CPU or on each GPU, each with its own cores. Those of a GPU
        share its memory, and only one of them times a kernel at a time.
    limit
        Give at most N verdicts: one per kernel and policy.
    contended
        Also judge again the kernels whose timing other work disturbed (flag contended).
    dry_run
        Print what would be judged; judge nothing.
    """
    import store
    from evaluators.device import identity, placement
    from evaluators.judging.config import parse_axes
    from evaluators.processes.text import name_axes
    from evaluators.scheduling import ray_cluster
    from evaluators.scheduling import run as runs
    from evaluators.scheduling.judges.process import start_judges
    from evaluators.scheduling.run import Selection, find_pending

    module = contract.load(evaluator)
    selection = Selection(
        suite=suite,
        kernel=kernel,
        where=where,
        contended=contended,
        policies=tuple(contract.list_policies(config, "cuda")),
        protocol=getattr(config, "protocol", None),
        shapes=tuple(name_axes(parse_axes(text)) for text in getattr(config, "axes", ())),
        limit=limit,
    )

    def list_pending(judging_device: dict[str, Any], devices: str) -> None:
        with store.open(common.lake) as lake:
            pending = find_pending(lake, module, [judging_device], selection)
            snapshot = lake.snapshot
        for row in pending.slice(0, _LISTED).to_pylist():
            task, path = quote_name(row["task_name"]), quote_name(row["path"])
            echo.print_note(f"{task:28} {path:28} {row['kernel_id'][:12]}")
        if pending.num_rows > _LISTED:
            echo.print_note(f"… and {pending.num_rows - _LISTED} more")
        count = count_nouns(pending.num_rows, "kernel")
        echo.print_result(f"would judge {count} on {devices} at snapshot {snapshot}")

    if ray is not None:
        ray_cluster.check_device(device)
        store.open(common.lake).close()
        opened = runs.open_judges(ray_cluster.start_judges(ray, evaluator, device, config, workers))
    else:
        layout = placement.divide_machine(device, workers)
        places = layout.places[:1] if dry_run else layout.places
        with store.open(common.lake) as lake:  # refuse a missing lake before torch is loaded
            known = identity.recognize_devices(lake.run("FROM devices").rows(), places)
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
    *,
    task: str,
    entry_point: str | None = None,
    workload: str | None = None,
    evaluator: _EvaluatorName = contract.DEFAULT,
    device: Device = "auto",
    format: Literal["table", "json"] = "table",
    config: Any = None,
    common: Common = _DEFAULT,
) -> None:
    """Judge one of your own files; store nothing. Exits with 0 only if the kernel is correct.

    Examples:
      evaluators check my_kernel.py --task temperature_softmax
      evaluators check my_kernel.py --task my_task.py --on cpu
      evaluators check my_kernel.py --task starter/diag_matmul --format json
      evaluators check my_kernel.py --task my_task.py --entry-point softmax
      evaluators check submission.py --task ./sort_py --workload test_1
      evaluators check my_folder --task gemm.json --entry-point main:run
      evaluators check my_kernel.py --task my_task.py --axes ROWS=1,COLS=77

    Parameters
    ----------
    file
        The kernel: a Python file, a .cu or .cpp file that binds `forward`, or a folder of such
        files.
    task
        Name or id of a task in the lake, or a file or folder with a task of KernelBench,
        KernelBench-Hard, robust-kbench, GPU MODE's reference-kernels or flashinfer-bench.
    entry_point
        Class or function to judge, or MODULE:NAME in a folder (default: the class ModelNew;
        else Model or a function custom_kernel, run, solution, kernel_fn or kernel_function;
        else the one public function that takes as many arguments as the task gives).
    workload
        Name of one of the task's workloads, or the values of its axes, such as M=256,K=64
        (default: the first, or that of the device for a task in the lake).
    format
        Format of the verdict. json prints all rows, including raw samples.
    """
    import store
    from evaluators.cli import verdict_text
    from evaluators.device import placement
    from evaluators.scheduling.cases import read_kernel, read_task
    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.timing.intervals import read_fallback_spreads
    from evaluators.timing.spreads import read_spreads

    place = placement.choose_place(device)
    task_text = read_task(task, common.lake)
    kernel = read_kernel(file, entry_point, task_text)
    with JudgeProcess(evaluator, place.device, config, place.cores) as judge:
        _warn(judge)
        spreads: dict[str, float] = {}
        with contextlib.suppress(LakeNotFound), store.open(common.lake) as lake:
            spreads = read_spreads(lake, judge.row["name"], contract.load(evaluator).VERSION)
        case = task_text.make_case(kernel, judge.row["kind"], workload)
        case = dataclasses.replace(case, spreads=spreads)
        policies = contract.list_policies(config, judge.row["kind"])
        answers = [
            _judge_patiently(judge, dataclasses.replace(case, policy=policy)) for policy in policies
        ]
    if format == "json":
        names = dict.fromkeys(name for tables in answers for name in tables)
        echo.print_json({n: [row for t in answers for row in t.get(n, [])] for n in names})
    else:
        color, width = sys.stdout.isatty(), echo.terminal_width(sys.stdout)
        device_name = judge.row["name"]
        if judge.row["kind"] == "cpu":
            threads = placement.count_threads(judge.row["cores"])
            device_name += f" with {count_nouns(threads, 'thread')}"
        for policy, tables in zip(policies, answers, strict=True):
            by = f" by {policy}" if len(policies) > 1 else ""
            for line in verdict_text.format_lines(
                file.name,
                device_name + by,
                tables,
                notes=_describe_case(kernel, task_text, workload, tables),
                spreads={**read_fallback_spreads(judge.row["kind"]), **spreads},
                color=color,
                width=width,
            ):
                echo.print_painted(line)
    if any(tables["evaluations"][0]["status"] != "correct" for tables in answers):
        sys.exit(1)


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
    chosen = task.name_workload(workload)
    if chosen is not None:
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
    from evaluators.sandbox.doctor import format_warning

    text = format_warning(judge.read_walls()[0])
    if text is not None:
        echo.print_note(text)


def serve(
    *,
    evaluator: _EvaluatorName = contract.DEFAULT,
    host: str = "127.0.0.1",
    port: _Port = 8770,
    device: Devices = "auto",
    workers: Annotated[_Workers, Parameter(validator=Number(gte=1))] = 1,
    ray: _RayAddress = None,
    queue: Count = 10_000,
    drain_s: float = 60.0,
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
    drain_s
        Seconds that judges may take to finish when the server ends.
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise FlywheelError(
            "`evaluators serve` needs starlette and uvicorn",
            "Install them: pip install 'kernel-flywheel[serve]'",
        )
    import store
    from evaluators.service import server

    options = server.Options(
        host=host,
        port=port,
        device=device,
        workers=workers,
        ray=ray,
        queue=queue,
        drain_s=drain_s,
    )
    contract.get_policy(config)
    if getattr(config, "protocol", "full") != "full":
        raise FlywheelError("a judge service judges by the full protocol", "Leave out --protocol.")
    server.serve(store.Location.of(common.lake), contract.load(evaluator), config, options)


def create(client: str, /, *, scope: list[str], common: Common = _DEFAULT) -> None:
    """Create a token and print it once; only its hash is stored.

    Examples:
      evaluators token create trainer --scope judge

    Parameters
    ----------
    client
        Name of its holder. Holders take turns at the judges, whatever the number of their kernels.
    scope
        read (look up judgments and tasks), judge (also submit), admin (everything). Repeat the
        option for several.
    """
    from evaluators.service import queue

    echo.print_result(queue.create_token(_open(common), client, queue.check_scopes(scope)))


def list_(*, format: ListFormat = "table", common: Common = _DEFAULT) -> None:
    """List the tokens: their clients, scopes and dates."""
    from datetime import UTC, datetime

    import pyarrow as pa

    from evaluators.service import queue
    from store.commandline import display

    rows = [
        row | {"created_at": datetime.fromtimestamp(int(row["created_at"]), UTC).isoformat()}
        for row in queue.list_tokens(_open(common))
    ]
    schema = pa.schema([(name, pa.string()) for name in ("client", "scopes", "created_at")])
    display.write_rows(pa.Table.from_pylist(rows, schema=schema), format)


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
    """Open the queue of the lake that the options name. Raises LakeNotFound."""
    import store
    from evaluators.service.queue import Database

    location = store.Location.of(common.lake)
    location.require()
    return Database(location)
