"""Commands on findings: search the stored kernels, list and decide, run NVIDIA's tools."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from store import read_sql
from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.members import Common, Count, DeviceOption, Format
from store.commandline.progress import show_progress
from store.errors import DeviceUnavailable, FlywheelError, SandboxFailed, UnknownName

_DEFAULT = Common()
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


def add_to(app: App) -> None:
    """Give the `evaluators` command these commands."""
    for command in (audit, findings, quarantine, dismiss, withdraw, diagnose):
        app.command(command)


def audit(
    *,
    detector: str | None = None,
    where: str | None = None,
    limit: Count | None = None,
    llm: str | None = None,
    model: str | None = None,
    max_calls: Count = 50,
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
      evaluators audit --llm http://localhost:8000/v1 --model NAME --max-calls 20

    Parameters
    ----------
    detector
        Run only this detector (a file of evaluators/detectors or ./flywheel/detectors).
    where
        Search only kernels for which this SQL condition is true. It can use the columns of kernels,
        and policy_id and task_name.
    limit
        Search at most N kernels.
    llm
        Base URL of an OpenAI-compatible endpoint. Its model checks only surprising wins: speedups
        above 3x, or above twice that of the best other kernel of the task.
    model
        Name of the endpoint's model.
    max_calls
        Send at most N requests to the endpoint, including retries.
    key_env
        Environment variable with the key of an endpoint, as HOST=NAME or HOST:PORT=NAME. HOST
        alone means the default port (443 for https, 80 for http). https://api.openai.com gets
        OPENAI_API_KEY; other endpoints get no key unless you name them here.
    format
        Format of the list of datasets.
    """
    import store
    from evaluators.audit import detect, sweep
    from store.commandline import display

    if (llm is None) != (model is None):
        raise FlywheelError("--llm and --model belong together", "Give both, or neither.")
    if key_env and llm is None:
        raise FlywheelError(
            "--key-env needs an endpoint", "Name the endpoint with --llm and --model."
        )
    store.Location.of(common.lake).require()
    if llm is not None and model is not None:
        from evaluators.audit import language_model

        checks = language_model.ask_about_wins(
            common.lake,
            language_model.Endpoint(
                url=llm, model=model, max_calls=max_calls, key_env=tuple(key_env or ())
            ),
            where,
            limit,
        )
        echo.print_note(str(checks))
        names, run_id, kernels = [f"llm:{model}"], checks.run_id, checks.kernels
        found, snapshot = checks.findings, checks.snapshot
    else:
        with show_progress(quiet=common.quiet) as progress:
            done = sweep.sweep(
                common.lake, detector=detector, where=where, limit=limit, progress=progress
            )
        names = [one.name for one in detect.choose_detectors(detector)] + [detect.UNREADABLE]
        run_id, kernels, found, snapshot = done.run_id, done.kernels, done.findings, done.snapshot
        if done.kernels:
            rate = done.kernels / done.seconds
            echo.print_note(f"{done.kernels} kernels in {done.seconds:.1f} s, {rate:.0f} kernels/s")
    with store.open(common.lake) as lake:
        if run_id is not None and format == "table":
            display.print_table(sweep.count_by_class(lake, run_id, names), sys.stderr)
        holding = sweep.find_marked_datasets(lake)
    if holding.num_rows or format != "table":
        display.write_rows(holding, format)
    elif kernels:
        echo.print_note("no dataset contains a suspect kernel")
    if format == "table":
        echo.print_result(f"{kernels} kernels searched, findings +{found} → snapshot {snapshot}")


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
    import store
    from evaluators.audit import host_faults, sweep
    from store.commandline import display

    with store.open(common.lake) as lake:
        display.write_rows(sweep.list_findings(lake, kernel), format)
        faults = host_faults.find_host_faults(lake).num_rows
    if faults:
        echo.print_note(
            f"{faults} verdicts show a fault of their host, not of a kernel: evaluators withdraw"
        )


def quarantine(identity: str, /, *, why: str, common: Common = _DEFAULT) -> None:
    """Confirm a finding, or report a kernel. No new dataset contains the kernel.

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
        Withdraw what is listed without a question.
    """
    import store
    from evaluators.audit import host_faults
    from store.commandline import display

    store.Location.of(common.lake).require()
    with store.open(common.lake) as lake:
        faults = host_faults.find_host_faults(lake)
        snapshot = lake.snapshot
    if not faults.num_rows:
        echo.print_result(f"no verdict shows a fault of its host at snapshot {snapshot}")
        return
    display.print_table(faults.select(host_faults.SHOWN), sys.stderr)
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
    snapshot = host_faults.withdraw(common.lake, faults)
    echo.print_result(f"withdrew {faults.num_rows} verdicts → snapshot {snapshot}")


def _decide(identity: str, decision: str, why: str, common: Common) -> None:
    import store
    from evaluators.audit import sweep
    from store.commandline import display

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
    import store
    from evaluators.device import placement
    from evaluators.judging import nvidia_tools
    from evaluators.scheduling.cases import read_cases
    from evaluators.scheduling.judges.process import JudgeProcess

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
