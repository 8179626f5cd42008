"""The command that runs NVIDIA's tools on the fastest kernels."""

from __future__ import annotations

import sys
from typing import Literal

from cyclopts import App

from store import read_sql
from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.members import Common
from store.errors import DeviceUnavailable, SandboxFailed, UnknownName

_DEFAULT = Common()


def add_to(app: App) -> None:
    """Give the `evaluators` command this command."""
    app.command(diagnose)


def diagnose(
    kernel: str | None = None,
    /,
    *,
    top: int = 10,
    tool: Literal["ncu", "sanitizer"] = "ncu",
    device: str = "auto",
    common: Common = _DEFAULT,
) -> None:
    """Run Nsight Compute or compute-sanitizer on the fastest kernels of a GPU.

    ncu writes analyses; sanitizer (memcheck and initcheck) writes findings of class memory_error.
    Every verdict already has an analysis by torch's profiler. These tools take longer and report
    more.

    Examples:
      evaluators diagnose --top 3
      evaluators diagnose 82db91 --tool sanitizer --device cuda:1

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
                    "Give a GPU, such as --device cuda:0.",
                )
            with writer.reader() as lake:
                parameters = {"device": judge.row["name"], "kernel": wanted, "top": top}
                query = read_sql(__file__, "fastest_kernels")
                kernels = lake.run(query, parameters).arrow()
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
