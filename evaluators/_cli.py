"""The `evaluators` command: list the evaluators, judge what is pending, check one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from evaluators.judge import Config
from store import room
from store.errors import DeviceUnavailable, FlywheelError
from store.room import Common, Format

_DEFAULT = Common()
_CONFIG = Config()

app = App(
    name="evaluators",
    help="""Judge kernels: right or wrong, and how fast against the eager baseline.

A candidate runs in a process of its own under limits and never states its own verdict. This version
judges the kernels of the starter suite only. Exit codes: 0 done, 1 refused with a reason, 2 usage,
3 rows broke a rule.

Examples:
  evaluators run
  evaluators run --device cuda:0 --where "task_name LIKE 'softmax%'"
  evaluators check my_kernel.py --task softmax
""",
    help_format="plaintext",
    version_flags=[],
    suppress_keyboard_interrupt=False,  # the shell says what stays
)


def main() -> None:
    """Run the `evaluators` command."""
    room.run(app)


@app.command(name="list")
def list_(*, format: Format = "table", common: Common = _DEFAULT) -> None:
    """List the evaluators.

    Parameters
    ----------
    format
        table, json or csv.
    """
    import pyarrow as pa

    from store import display

    rows = [
        {"evaluator": one.name, "about": one.about} for one in room.members("evaluators").values()
    ]
    display.write(pa.Table.from_pylist(rows), format)


@app.command
def run(
    *,
    evaluator: str = "judge",
    pending: Annotated[bool, Parameter(negative="")] = True,
    kernel: str | None = None,
    where: str | None = None,
    suite: str = "starter",
    device: str = "auto",
    limit: int | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    config: Annotated[Config, Parameter(name="*")] = _CONFIG,
    common: Common = _DEFAULT,
) -> None:
    """Judge the kernels that lack a verdict of this evaluator version on this device.

    Each result is appended as it comes: interrupt it when you like, run it again to go on.

    Parameters
    ----------
    evaluator
        Which evaluator (`evaluators list`).
    pending
        Judge what lacks a verdict; what has one is never judged again.
    kernel
        Only the kernel whose id starts so.
    where
        Only rows for which this SQL holds: kernel_id, task_id, workload_id, axes, task_name, path.
    suite
        Suite whose kernels are judged.
    device
        cpu, cuda:0, cuda:1 …; auto takes the first GPU where there is one.
    limit
        At most so many kernels.
    dry_run
        Say what would be judged, and judge nothing.
    config
        Settings of `judge`; another evaluator runs with its own defaults.
    """
    import store
    from evaluators import _run
    from evaluators._host import Host

    _check_device(device)
    member = room.member("evaluators", evaluator).load()
    settings = config if member.Config is Config else member.Config()
    wanted = _run.Wanted(suite=suite, kernel=kernel, where=where, limit=limit)
    store.open(common.lake).close()  # a lake that is not there is refused before torch is loaded
    with Host(evaluator, device, settings) as host:
        if dry_run:
            with store.open(common.lake) as lake:
                found = _run.pending(lake, member, host.row, wanted)
                snapshot = lake.snapshot
            for row in found.slice(0, 10).to_pylist():
                _say(f"{row['task_name']:28} {row['path']:28} {row['kernel_id'][:12]}")
            shown = f"would judge {found.num_rows} on {host.row['name']}"
            _print(f"{shown} → snapshot {snapshot} stays")
            return
        with _run.shown_progress() as progress:
            tally = _run.run(common.lake, member, host, settings, wanted, progress)
    if not tally.evaluations:
        _print(f"0 pending on {host.row['name']} at snapshot {tally.snapshot}")
        return
    _say("  ".join(f"{status} {n}" for status, n in sorted(tally.statuses.items())))
    _print(str(tally))


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
    import json

    from evaluators import _report, _run
    from evaluators._host import Host

    _check_device(device)
    if not file.is_file():
        raise FlywheelError(f"no file {file}", "Give the path of a Python file.")
    problem = _run.problem(task, common.lake)
    with Host("judge", device, config) as host:
        tables = host.judge(problem.case(file, host.row["kind"]))
    if format == "json":
        _print(json.dumps(tables, indent=1))
    else:
        for line in _report.lines(file.name, host.row["name"], tables):
            _print(line)
    if tables["evaluations"][0]["status"] != "correct":
        sys.exit(1)


def _check_device(device: str) -> None:
    kind, _, number = device.partition(":")
    if device not in ("cpu", "auto", "cuda") and not (kind == "cuda" and number.isdigit()):
        raise DeviceUnavailable(f'no device "{device}"', "Choose cpu, auto, cuda:0, cuda:1 …")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
