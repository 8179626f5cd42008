"""The `evaluators` command: list the evaluators, judge pending kernels, check one file."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from evaluators.cli import findings, judging
from evaluators.cli.findings import Device, Devices, ListFormat
from evaluators.judge import Config
from evaluators.scheduling import contract
from store.commandline import echo, members
from store.commandline.escape import escape_terminal, quote_name
from store.commandline.help import make_room_app
from store.commandline.members import Common
from store.errors import FlywheelError, HostUnfit

if TYPE_CHECKING:
    from evaluators.scheduling.judges.process import JudgeProcess

_DEFAULT = Common()

app = make_room_app(
    "evaluators",
    """Judge kernels: test if they are correct, and measure their speedup over PyTorch eager.

Each candidate runs in a sandboxed process, which does not compute its own verdict.""",
    [
        "evaluators run",
        "evaluators run --suite starter --on cuda --limit 100",
        "evaluators run --on cuda:0 --where \"task_name LIKE '%softmax%'\"",
        "evaluators check my_kernel.py --task temperature_softmax",
        "evaluators tasks",
        "evaluators serve",
    ],
)
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

members.add_list(app, "evaluators")
_judging_commands = judging.add_to(app)
findings.add_to(app)


def main() -> None:
    """Run the `evaluators` command."""
    members.run(app, *_judging_commands)


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
        List the kinds of tasks and kernels that the judge cannot judge instead. A verdict that
        refuses one names its limit.
    """
    if limits:
        from evaluators.limits import kinds

        if format != "table":
            _write_rows(kinds.list_limits(), format)
            return
        for line in kinds.format_lines(echo.terminal_width(sys.stdout)):
            echo.print_result(line)
        return
    from evaluators.device import placement
    from evaluators.judging import host
    from evaluators.sandbox import doctor as walls
    from evaluators.scheduling.judges.process import JudgeProcess

    place = placement.choose_place(device)
    rows = host.describe_facts("cpu" if place.device == "cpu" else "cuda")
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

    from store.commandline import display

    display.write_rows(pa.Table.from_pylist(rows), format)


def _describe_clocks(judge: JudgeProcess) -> list[dict[str, Any]]:
    """Return a row for each clock: what, holds, state, follows and mend, as the doctor prints.

    The session times a module of one small operation, so samples have as many calls as they can.
    The empty arm's scatter gives the resolution.

    judge: A process of the evaluator `judge` with `_CLOCK_CONFIG`.
    """
    from evaluators.scheduling.cases import KernelText, TaskText
    from store.schema.clocks import RESOLVED

    def describe(what: str, holds: bool, state: str) -> dict[str, Any]:
        follows = None if holds else "a kernel of 0.1 ms has a bound for a time, or none"
        mend = None if holds else "End other work on this host, or judge on another one."
        return {"what": what, "holds": holds, "state": state, "follows": follows, "mend": mend}

    code = _CLOCK_TASK.replace("class Model(", "class ModelNew(")
    kernel = KernelText(code=code, path="kernel.py", entry_point="ModelNew", is_class=True)
    case = TaskText(code=_CLOCK_TASK, axes={}).make_case(kernel, judge.row["kind"], None)
    tables = judge.judge(replace(case, policy="torch_default"))
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
    workers: int = 1,
    task_s: float = 600.0,
    common: Common = _DEFAULT,
) -> None:
    """Find weak tasks, which trivial answers pass. Their verdicts get the flag weak_task.

    Each result is committed to the table task_audits immediately. You can interrupt the command at
    any time and run it again to resume; it tries tasks again that could not be run, such as those
    that are too large for the memory. Each version of the audit tests a task once per kind of
    device. Rankings and tables leave weak tasks out.

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
    import store
    from evaluators.device import identity, placement
    from evaluators.scheduling import task_audits
    from evaluators.scheduling.judges.process import start_judges

    def report(result: task_audits.Result, number: int, of: int) -> None:
        if result.row is None:
            state = f"cannot be run: {escape_terminal(result.why[:120])}"
        else:
            state = "weak" if result.row["weak"] else "not weak"
        done = f"{number} of {of}"
        echo.print_note(f"{done:10} {quote_name(result.name):28} {state}, {result.seconds:.1f} s")

    places = placement.divide_machine(device, workers).places
    with store.open(common.lake) as lake:  # refuse a missing lake before torch is loaded
        known = identity.recognize_devices(lake.run("FROM devices").rows(), places)
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
        echo.print_note(f"weak: {quote_name(name):28} {', '.join(passes)}")
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
    import store
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
