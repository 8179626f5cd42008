"""Best kernels: the fastest kernel of each task, with its code and a diff to the reference."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from store.rendering import text
from store.rendering.columns import format_value
from store.rendering.text import TIMES
from store.report.page.section import Answer, Exhibit, Listing, Section, ask

if TYPE_CHECKING:
    from store.lake.reader import Lake

KERNELS = 10


def build_section(lake: Lake) -> Section:
    """Query the best kernels, and compare each one with its reference."""
    return Section(
        name="best",
        title="Best kernels",
        exhibits=[
            Exhibit(answer=ask(lake, "best"), split=()),
            Exhibit(answer=ask(lake, "spreads"), split=()),
            list_code(ask(lake, "best_code", kernels=KERNELS)),
        ],
    )


def list_code(answer: Answer) -> Exhibit:
    """Show the kernels of an answer with their code."""
    return Exhibit(answer=answer, listings=[_listing(row) for row in answer.rows])


def _listing(row: dict[str, Any]) -> Listing:
    code, reference = text.cut_code(row["code"]), text.cut_code(row["reference"])
    path = text.make_label(row["path"])
    diff = difflib.unified_diff(
        reference.splitlines(), code.splitlines(), "reference", path, lineterm=""
    )
    speedup, low, high = (
        format_value("speedup", row[name]) for name in ("speedup", "speedup_low", "speedup_high")
    )
    return Listing(
        anchor=f"kernel-{row['kernel_id'][:12]}",
        title=f"{row['suite']} {row['task']}: {speedup}{TIMES}",
        facts={
            "kernel": row["kernel_id"],
            "task": row["title"] or row["task_id"],
            "speedup over eager": (
                f"{speedup}{TIMES} [{low}, {high}], {row['n']} paired samples of "
                f"{row['sessions']} session{'s' * (row['sessions'] > 1)}, {row['device']}"
            ),
            "by": row["policy"] or "unknown",
            "other shapes": row["shapes"] or "none tried",
            "fragile": row["fragile"] or "no robustness check failed",
            "techniques": row["techniques"] or "none seen",
            "license": row["license"] or "none stated",
        },
        code=code,
        path=path,
        diff="\n".join(diff),
    )
