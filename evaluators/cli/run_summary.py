"""Print what a run of `evaluators run` would judge, and what it has appended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from store.commandline import echo
from store.commandline.escape import quote_name

if TYPE_CHECKING:
    import pyarrow as pa

    from evaluators.scheduling.run import Tally

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
    if tally.elsewhere:
        kernels = count_nouns(tally.elsewhere, "kernel")
        be = "is" if tally.elsewhere == 1 else "are"
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
