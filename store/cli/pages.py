"""Commands that show or serve pages: a kernel or task, a figure, a report, an explorer, MCP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from store.cli.options import COMMON, INCLUDING, At, Include, locate_lake, open_lake
from store.commandline import echo
from store.commandline.members import Common, PageFormat
from store.mcp.serving import Address, AgentLimits

_ADDRESS = Address()
_LIMITS = AgentLimits()


def add_to(app: App) -> None:
    """Add these commands to `store`."""
    for command in (show, headline, report, explore, mcp):
        app.command(command)


def show(
    name: str,
    /,
    *,
    lineage: Annotated[bool, Parameter(negative="")] = False,
    at: At = None,
    format: PageFormat = "table",
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
        Name of a task, such as level1/9 or L1-9, or the id of a kernel or run or its first
        characters.
    lineage
        Show only the kernels that this one was made from: its parents, the exemplars in its
        prompts, and theirs in turn.
    format
        Format of the page.
    """
    from store.cli import show
    from store.dossier import pages

    with open_lake(common, at) as lake:
        show.print_page(
            pages.find_ancestry(lake, name) if lineage else pages.read_page(lake, name), format
        )


def headline(
    name: str = "cuda-l1",
    /,
    *,
    at: At = None,
    format: PageFormat = "table",
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
    format
        Format of the steps.
    """
    from store.headlines import story

    with open_lake(common, at) as lake:
        story.print_story(story.read_story(lake, name), format)


def report(
    *,
    out: Path = Path("report"),
    at: At = None,
    run: str | None = None,
    including: Include = INCLUDING,
    common: Common = COMMON,
) -> None:
    """Write a report about the lake: leaderboards, distributions, claims, techniques, best kernels.

    Writes report.html, one file without scripts or external resources, and report.md with its
    charts in figures/. Every table and chart has its SQL below it. One snapshot always gives the
    same bytes, unless a tag is added, moved or removed.

    Examples:
      store report --out report
      store report --at h200 --out report-h200
      store report --run RUN --out report-run

    Parameters
    ----------
    out
        Folder to write. A report that this command wrote there before is replaced.
    run
        Id of a training or sampling run, or its first characters. The report then covers this run:
        learning curves, best kernels with their lineage, and costs.
    """
    import store
    from store.commandline.outputs import write_folder
    from store.explore.report import build_report, write_report

    begun = time.monotonic()
    with (
        store.open(common.lake, at, include=including.views()) as lake,
        write_folder(out, "store report") as folder,
    ):
        written = write_report(build_report(lake, run), folder)
        snapshot = lake.snapshot
    html = out / written.html.name
    echo.print_result(
        f"{html} ({html.stat().st_size / 1e6:.2f} MB), {written.markdown.name}, "
        f"{written.charts} charts, snapshot {snapshot}, {time.monotonic() - begun:.1f} s"
    )


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


def mcp(
    *,
    at: Annotated[str | None, Parameter(show_default=False)] = None,
    address: Annotated[Address, Parameter(name="*")] = _ADDRESS,
    limits: Annotated[AgentLimits, Parameter(name="*")] = _LIMITS,
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
    from store.mcp.server import build_server
    from store.mcp.serving import serve

    serve(LakeTools(locate_lake(common), at, limits), build_server, address)
