"""`store report`: a page about a lake, or about one run, as HTML and Markdown."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from store.commandline import echo
from store.commandline.members import Common
from store.lake.exclusions import Inclusions

Include: TypeAlias = Annotated[Inclusions, Parameter(name="*", negative="")]
At: TypeAlias = Annotated[str | None, Parameter(show_default=False)]

_DEFAULT = Common()
_INCLUDING = Inclusions()


def report(
    *,
    out: Path = Path("report"),
    at: At = None,
    run: str | None = None,
    including: Include = _INCLUDING,
    common: Common = _DEFAULT,
) -> None:
    """Write a page about the lake: leaderboards, distributions, claims, techniques, best kernels.

    Writes report.html (one file, no scripts, nothing fetched), and report.md with its charts in
    figures/. Every table and chart has its SQL beneath it. The same snapshot gives the same bytes.

    Examples:
      store report --out report
      store report --at h200 --out report-h200
      store report --run RUN --out report-run

    Parameters
    ----------
    out
        Folder to write into.
    at
        Tag, snapshot number or ISO time to read the lake at (default: newest).
    run
        Id of a run of training or sampling, or the first characters of it: learning curves, the
        best kernels with their lineage, and costs of that run alone.
    """
    import store
    from store.report.page import contents, render

    begun = time.monotonic()
    with store.open(common.lake, at, include=including.views()) as lake:
        written = render.write(contents.page(lake, run), out)
        snapshot = lake.snapshot
    megabytes = written.html.stat().st_size / 1e6
    echo.print_result(
        f"{written.html} ({megabytes:.2f} MB), {written.markdown.name}, {written.charts} charts, "
        f"snapshot {snapshot}, {time.monotonic() - begun:.1f} s"
    )
