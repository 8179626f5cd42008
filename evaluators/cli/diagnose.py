"""The command that looks at the fastest kernels with NVIDIA's own tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts import App

from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.members import Common
from store.errors import DeviceUnavailable, SandboxFailed, UnknownName

_DEFAULT = Common()
_SQL = Path(__file__).parent / "sql"


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
    """Look at the fastest kernels of a GPU with Nsight Compute or compute-sanitizer.

    ncu writes analyses, sanitizer (memcheck and initcheck) writes findings of class memory_error.
    Every verdict has an analysis by torch's profiler already; this is slower and sees more.

    Examples:
      evaluators diagnose --top 3
      evaluators diagnose 9f2c41 --tool sanitizer --device cuda:0

    Parameters
    ----------
    kernel
        Only kernels whose id starts so.
    top
        So many of the fastest over eager.
    tool
        ncu or sanitizer.
    device
        cuda:0, cuda:1 …; auto takes the first GPU.
    """
    import store
    from evaluators.device import placement
    from evaluators.judge import Config
    from evaluators.judging import nvidia_tools
    from evaluators.scheduling import pending
    from evaluators.scheduling.judge_process import Host

    nvidia_tools.find_program(tool)
    place = placement.divide_machine(device).places[0]
    with store.writer(common.lake, author="evaluators diagnose") as writer:
        with Host("judge", place.device, Config(), place.cores) as host:
            if host.row["kind"] != "cuda":
                raise DeviceUnavailable("these tools look at a GPU", "Name one: --device cuda:0")
            with writer.reader() as lake:
                given = {"device": host.row["name"], "kernel": kernel, "top": top}
                wanted = lake.run((_SQL / "diagnose.sql").read_text("utf-8"), given).arrow()
                cases = list(pending.texts(lake, wanted, host.row["name"]))
                snapshot = lake.snapshot
            if not cases:
                raise UnknownName(
                    f"no ranked kernel of {host.row['name']} to look at",
                    "Judge some first: evaluators run",
                )
            failed = written = 0
            for case in cases:
                name = f"{quote_name(case['path'])} {case['kernel_id'][:8]}"
                try:
                    tables = host.look(case, tool)
                except SandboxFailed as error:
                    failed += 1
                    echo.print_note(f"{name} was not seen:")
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
                    writer.append(tables, message=f"{tool} {case['kernel_id'][:12]}", wait=False)
        if written:
            snapshot = writer.flush()
    done = f"{len(cases) - failed} kernels seen by {tool}, {failed} not"
    echo.print_result(f"{done}, rows +{written} → snapshot {snapshot}")
