"""Commands that judge with one evaluator, whose options they take: `run` and `check`."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from evaluators.cli.serving import make_serve
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
    import pyarrow as pa
    from mcp.server import MCPServer

    from evaluators.judging.case import Case
    from evaluators.scheduling.cases import KernelText, TaskText
    from evaluators.scheduling.judge_threads import Judge
    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.scheduling.pending import Selection
    from evaluators.scheduling.prebuild import Builder
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


def print_pending(pending: pa.Table, devices: str, snapshot: int) -> None:
    """Print what a run would judge: the number of kernels, and the first of them."""
    for row in pending.slice(0, _LISTED).to_pylist():
        task, path = quote_name(row["task_name"]), quote_name(row["path"])
        echo.print_note(f"{task:28} {path:28} {row['kernel_id'][:12]}")
    if pending.num_rows > _LISTED:
        echo.print_note(f"… and {pending.num_rows - _LISTED} more")
    count = count_nouns(pending.num_rows, "kernel")
    echo.print_result(f"would judge {count} on {devices} at snapshot {snapshot}")


def print_tally(tally: Tally, devices: str) -> None:
    """Print what a run has appended, and how many of its kernels do not rank."""
    if tally.left_to_others:
        kernels = count_nouns(tally.left_to_others, "kernel")
        be = "is" if tally.left_to_others == 1 else "are"
        echo.print_note(f"another run is judging {kernels}, which {be} left to it")
    for why, number in tally.unfit.items():
        kernels, stay = count_nouns(number, "kernel"), "stays" if number == 1 else "stay"
        echo.print_note(f"{kernels} {stay} pending: {why}")
    if not tally.evaluations and not tally.unfit:
        echo.print_result(f"0 pending on {devices} at snapshot {tally.snapshot}")
        return
    if tally.statuses:
        statuses = (f"{status} {n}" for status, n in sorted(tally.statuses.items()))
        echo.print_note("  ".join(statuses))
    if tally.contended:
        kernels, do = (
            count_nouns(tally.contended, "kernel"),
            "does" if tally.contended == 1 else "do",
        )
        echo.print_note(
            f"{kernels} ran while this host did other work and {do} not rank. Measure again on a"
            " quiet machine: evaluators run --contended"
        )
    if tally.unranked:
        kernels = count_nouns(tally.unranked, "kernel")
        do = "does" if tally.unranked == 1 else "do"
        echo.print_note(
            f'{kernels} {do} not rank by any clock. store query "FROM unranked_sessions" says why.'
        )
    echo.print_result(str(tally))


_DEFAULT = Common()
_ADDRESS = Address()


def make_mcp(module: Evaluator) -> Callable[..., None]:
    """Return the function of `evaluators mcp` with the options of an evaluator."""
    defaults = module.Config()

    def mcp(
        *,
        evaluator: str = contract.name_of(module),
        device: DeviceOption = "auto",
        workers: int = 1,
        address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
        config: Any = defaults,
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

        Parameters
        ----------
        evaluator
            Name of the evaluator (`evaluators list`). Add --help to list its options.
        device
            cpu, cuda (every GPU), or names such as cuda:0,cuda:1. auto means every GPU, or the CPU
            if there is none.
        workers
            Number of judges on the CPU or on each GPU, each with its own cores.
        """
        import store
        from evaluators.scheduling.pool import Pool
        from evaluators.submissions.desk import JudgeDesk
        from store.mcp.server import READING_ROOMS, build_server
        from store.mcp.serving import serve

        def build(desk: LakeTools) -> MCPServer[Any]:
            return build_server(desk, (*READING_ROOMS, contract.ROOM))

        def make_pool() -> Pool:
            return Pool(common.lake, device, config, evaluator=evaluator, workers=workers)

        contract.get_policy(config)
        desk = JudgeDesk(
            store.Location.of(common.lake),
            AgentLimits(),
            make_pool,
            {"evaluator": evaluator, "device": device, "config": dataclasses.asdict(config)},
        )
        serve(desk, build, address)

    return mcp


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
    default = contract.load_default()
    commands: list[EvaluatorCommand] = []
    for make in (_make_run, _make_check, make_mcp, make_serve):

        def load_command(
            member: Member, make: Callable[[Evaluator], Callable[..., None]] = make
        ) -> Callable[..., None]:
            module = contract.load(member.name)
            return _add_options(make(module), module)

        command = _add_options(make(default), default)
        app.command(command)
        commands.append(EvaluatorCommand(app, contract.ROOM, load_command, verb=command.__name__))
    return commands


def _make_run(module: Evaluator) -> Callable[..., None]:
    defaults = module.Config()

    def run(
        *,
        evaluator: str = contract.name_of(module),
        kernel: str | None = None,
        where: str | None = None,
        suite: str | None = None,
        device: DeviceOption = "auto",
        workers: int = 1,
        ray: str | None = None,
        limit: Count | None = None,
        contended: Annotated[bool, Parameter(negative="")] = False,
        dry_run: Annotated[bool, Parameter(negative="")] = False,
        config: Any = defaults,
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
        evaluator
            Name of the evaluator (`evaluators list`). Add --help to list its options.
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
        ray
            Address of a Ray cluster (auto, HOST:PORT, ray://HOST:PORT). It runs one judge per GPU,
            or --workers judges with --on cpu.
        limit
            Give at most N verdicts: one per kernel and policy.
        contended
            Also judge again the kernels whose timing other work disturbed (flag contended).
        dry_run
            Print what would be judged; judge nothing.
        """
        from evaluators.judging.config import parse_axes
        from evaluators.processes.text import name_axes
        from evaluators.scheduling.pending import Selection

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
        judging = _Judging(evaluator, module, config, common)
        if ray is not None:
            judging.run_on_ray(ray, device, workers, selection, dry_run=dry_run)
        else:
            judging.run_here(device, workers, selection, dry_run=dry_run)

    return run


@dataclass(frozen=True)
class _Judging:
    """One call of `evaluators run`."""

    name: str
    module: Evaluator
    config: Any
    common: Common

    def run_here(self, device: str, workers: int, selection: Selection, *, dry_run: bool) -> None:
        import store
        from evaluators.device import identity, placement
        from evaluators.scheduling.run import find_idle, open_judges

        layout = placement.divide_machine(device, workers)
        places = layout.places[:1] if dry_run else layout.places
        with store.open(self.common.lake) as lake:  # refuse a missing lake before torch is loaded
            known = identity.recognize_devices(lake.run("FROM devices").rows(), places)
        if known and dry_run:
            self._list_pending(known[0], name_devices(known), selection)
            return
        if known:
            idle = find_idle(self.common.lake, self.module, known, selection)
            if idle is not None:
                print_tally(idle, name_devices(known))
                return
        with open_judges(self.name, places, layout.builders, self.config) as (judges, builders):
            _warn(judges[0])
            self._run(judges, builders, selection, dry_run=dry_run)

    def run_on_ray(
        self, address: str, device: str, workers: int, selection: Selection, *, dry_run: bool
    ) -> None:
        import store
        from evaluators.scheduling import ray_cluster

        ray_cluster.check_device(device)
        store.open(self.common.lake).close()
        with ray_cluster.open_judges(address, self.name, device, self.config, workers) as opened:
            self._run(*opened, selection, dry_run=dry_run)

    def _run(
        self,
        judges: Sequence[Judge],
        builders: Sequence[Builder],
        selection: Selection,
        *,
        dry_run: bool,
    ) -> None:
        from evaluators.scheduling.run import run

        devices = name_devices([judge.row for judge in judges])
        if dry_run:
            self._list_pending(judges[0].row, devices, selection)
            return
        with show_progress(quiet=self.common.quiet) as progress:
            tally = run(
                self.common.lake, self.module, judges, builders, self.config, selection, progress
            )
        print_tally(tally, devices)
        if tally.unfit:
            sys.exit(HostUnfit.exit_code)

    def _list_pending(self, device: dict[str, Any], devices: str, selection: Selection) -> None:
        import store
        from evaluators.scheduling.pending import find_pending

        with store.open(self.common.lake) as lake:
            pending = find_pending(lake, self.module, [device], selection)
            snapshot = lake.snapshot
        print_pending(pending, devices, snapshot)


def _make_check(module: Evaluator) -> Callable[..., None]:
    defaults = module.Config()

    def check(
        file: Path,
        /,
        *,
        task: str,
        entry_point: str | None = None,
        workload: str | None = None,
        evaluator: str = contract.name_of(module),
        device: DeviceOption = "auto",
        format: Literal["table", "json"] = "table",
        config: Any = defaults,
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
        evaluator
            Name of the evaluator (`evaluators list`). Add --help to list its options.
        device
            cpu, or a GPU such as cuda:0. cuda means the first GPU; auto means the first GPU, or the
            CPU if there is none.
        format
            Format of the verdict. json prints all rows, including raw samples.
        """
        from evaluators.cli import verdict_text
        from evaluators.device import placement
        from evaluators.scheduling.cases import read_kernel, read_task
        from evaluators.scheduling.judges.process import JudgeProcess
        from evaluators.timing.intervals import read_fallback_spreads

        place = placement.choose_place(device)
        task_text = read_task(task, common.lake)
        kernel = read_kernel(file, entry_point, task_text)
        with JudgeProcess(evaluator, place.device, config, place.cores) as judge:
            _warn(judge)
            spreads = _read_spreads(common.lake, judge.row["name"], module.VERSION)
            case = task_text.make_case(kernel, judge.row["kind"], workload)
            case = dataclasses.replace(case, spreads=spreads)
            policies = contract.list_policies(config, judge.row["kind"])
            answers = [
                _judge_patiently(judge, dataclasses.replace(case, policy=policy))
                for policy in policies
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

    return check


def _read_spreads(lake_url: str | None, device: str, version: int) -> dict[str, float]:
    """Return the spread of sessions by clock, where there is a lake with an estimate."""
    import store
    from evaluators.timing.spreads import read_spreads

    try:
        with store.open(lake_url) as lake:
            return read_spreads(lake, device, version)
    except LakeNotFound:
        return {}


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


def _add_options(command: Callable[..., None], module: Evaluator) -> Callable[..., None]:
    """Make the fields of an evaluator's Config options of a command.

    Raises FlywheelError where a field has the name of another option.
    """
    options = {*inspect.signature(command).parameters, *vars(_DEFAULT), "on"}
    for field in dataclasses.fields(module.Config()):
        if field.name in options:
            raise FlywheelError(
                f'Config.{field.name} of evaluator "{contract.name_of(module)}" has the name of'
                f" another option of `evaluators {command.__name__}`",
                "Rename the field.",
            )
    command.__annotations__["config"] = Annotated[module.Config, Parameter(name="*")]
    return command


def _warn(judge: JudgeProcess) -> None:
    """Print once which walls this machine cannot enforce."""
    from evaluators.sandbox.doctor import format_warning

    text = format_warning(judge.read_walls()[0])
    if text is not None:
        echo.print_note(text)
