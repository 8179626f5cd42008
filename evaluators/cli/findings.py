"""Commands over findings: search the stored kernels, list what was found, decide on it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import App, Parameter

from store.commandline import echo
from store.commandline.members import Common, Format
from store.commandline.progress import show_progress
from store.errors import FlywheelError

_DEFAULT = Common()


def add_to(app: App) -> None:
    """Give the `evaluators` command these commands."""
    for command in (audit, findings, quarantine, dismiss):
        app.command(command)


def audit(
    *,
    detector: str | None = None,
    where: str | None = None,
    limit: int | None = None,
    llm: str | None = None,
    model: str | None = None,
    max_calls: int = 50,
    key_env: Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)] = None,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """Search all stored kernels for signs of cheating, and list the datasets that hold one.

    A kernel is searched once by each version of a detector: what a new detector marks in the past
    is one more run of this command. Findings are tags and no verdicts; confirm one with
    `evaluators quarantine`. Interrupt it when you like, run it again to go on.

    Examples:
      evaluators audit
      evaluators audit --detector result-caching --limit 1000
      evaluators audit --llm http://localhost:8000/v1 --model qwen --max-calls 20

    Parameters
    ----------
    detector
        Only this detector (a file of evaluators/detectors or ./flywheel/detectors).
    where
        Only kernels for which this SQL holds: columns of kernels, policy_id, task_name.
    limit
        At most so many kernels.
    llm
        Base URL of an OpenAI-compatible endpoint: its model is asked about surprising wins only
        (above 3x, or twice the best other kernel of the task).
    model
        Model to ask there.
    max_calls
        At most so many requests to it, retries included.
    key_env
        HOST=NAME or HOST:PORT=NAME: environment variable with the key for the endpoint. A host
        without a port stands for the default port (443 of https, 80 of http). An endpoint that is
        not named gets no key; https://api.openai.com gets OPENAI_API_KEY.
    format
        table, json or csv: what the list of datasets is printed as.
    """
    import store
    from evaluators.audit import detect, sweep
    from store.commandline import display

    if (llm is None) != (model is None):
        raise FlywheelError("--llm and --model belong together", "Give the URL and the model.")
    if key_env and llm is None:
        raise FlywheelError("--key-env is for an endpoint", "Name one with --llm and --model.")
    if llm is not None and model is not None:
        from evaluators.audit import language_model

        asked = language_model.ask_about_wins(
            common.lake,
            language_model.Endpoint(
                url=llm, model=model, max_calls=max_calls, key_env=tuple(key_env or ())
            ),
            where,
            limit,
        )
        echo.print_note(str(asked))
        names, run_id, kernels = [f"llm:{model}"], asked.run_id, asked.kernels
        found, snapshot = asked.findings, asked.snapshot
    else:
        with show_progress(quiet=common.quiet) as progress:
            done = sweep.sweep(
                common.lake, detector=detector, where=where, limit=limit, progress=progress
            )
        names = [one.name for one in detect.chosen(detector)] + [detect.UNREADABLE]
        run_id, kernels, found, snapshot = done.run_id, done.kernels, done.findings, done.snapshot
        if done.kernels:
            rate = done.kernels / done.seconds
            echo.print_note(f"{done.kernels} kernels in {done.seconds:.1f} s, {rate:.0f} kernels/s")
    with store.open(common.lake) as lake:
        if run_id is not None and format == "table":
            display.print_table(sweep.classes(lake, run_id, names), sys.stderr)
        holding = sweep.datasets(lake)
    if holding.num_rows or format != "table":
        display.write_rows(holding, format)
    elif kernels:
        echo.print_note("no dataset holds a marked kernel")
    if format == "table":
        echo.print_result(f"{kernels} kernels searched, findings +{found} → snapshot {snapshot}")


def findings(
    kernel: str | None = None,
    /,
    *,
    format: Format = "table",
    common: Common = _DEFAULT,
) -> None:
    """List findings with line, quote and standing; those that wait for a decision come first.

    Parameters
    ----------
    kernel
        Id of a kernel or of a finding on it, or the start of one; all where it is left out.
    format
        table, json or csv.
    """
    import store
    from evaluators.audit import sweep
    from store.commandline import display

    with store.open(common.lake) as lake:
        display.write_rows(sweep.listed(lake, kernel), format)


def quarantine(identity: str, /, *, why: str, common: Common = _DEFAULT) -> None:
    """Confirm a finding, or file one on a kernel: no dataset made from here on holds the kernel.

    Examples:
      evaluators quarantine 9f2c41 --why "returns a cached answer"

    Parameters
    ----------
    identity
        Id of a finding or of a kernel, or the start of one.
    why
        The reason.
    """
    _decide(identity, "confirmed", why, common)


def dismiss(identity: str, /, *, why: str, common: Common = _DEFAULT) -> None:
    """Dismiss a finding; a kernel whose every confirmed finding was dismissed is free again.

    Examples:
      evaluators dismiss 4be07a --why "the cache is rebuilt for every input"

    Parameters
    ----------
    identity
        Id of a finding, or the start of one.
    why
        The reason.
    """
    _decide(identity, "dismissed", why, common)


def _decide(identity: str, decision: str, why: str, common: Common) -> None:
    import store
    from evaluators.audit import sweep
    from store.commandline import display

    finding_id, kernel_id, snapshot = sweep.decide(common.lake, identity, decision, why)
    with store.open(common.lake) as lake:
        held = lake.run(
            "SELECT kernel_id FROM quarantined WHERE kernel_id = $kernel_id",
            {"kernel_id": kernel_id},
        ).one()
        holding = sweep.datasets(lake, kernel_id)
    if held is not None and holding.num_rows:
        echo.print_note("datasets that were made with it:")
        display.print_table(holding, sys.stderr)
    state = "quarantined" if held is not None else "not quarantined"
    echo.print_result(
        f"{decision} finding {finding_id[:12]}: kernel {kernel_id[:12]} is {state}"
        f" → snapshot {snapshot}"
    )
