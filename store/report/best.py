"""Best kernels: the fastest of each task, with their code and what they change in the reference."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from store.report.page import text
from store.report.page.columns import cell
from store.report.page.section import Answer, Exhibit, Listing, Section, ask
from store.report.page.text import TIMES

if TYPE_CHECKING:
    from store.lake.reader import Lake

KERNELS = 10


def section(lake: Lake) -> Section:
    """Ask, and compare each kernel with its reference."""
    return Section(
        name="best",
        title="Best kernels",
        exhibits=[
            Exhibit(answer=ask(lake, "best"), split=()),
            listings(ask(lake, "best_code", kernels=KERNELS)),
        ],
    )


def listings(answer: Answer) -> Exhibit:
    """Show the kernels of an answer with their code."""
    return Exhibit(answer=answer, listings=[_listing(row) for row in answer.rows])


def _listing(row: dict[str, Any]) -> Listing:
    code, reference = text.code(row["code"]), text.code(row["reference"])
    path = text.label(row["path"])
    diff = difflib.unified_diff(
        reference.splitlines(), code.splitlines(), "reference", path, lineterm=""
    )
    return Listing(
        anchor=f"kernel-{row['kernel_id'][:12]}",
        title=f"{row['suite']} {row['task']}: {cell('speedup', row['speedup'])}{TIMES}",
        facts={
            "kernel": row["kernel_id"],
            "task": row["title"] or row["task_id"],
            "speedup over eager": (
                f"{cell('speedup', row['speedup'])}{TIMES} [{cell('speedup', row['speedup_low'])}, "
                f"{cell('speedup', row['speedup_high'])}], {row['n']} paired samples, "
                f"{row['device']}"
            ),
            "by": row["policy"] or "unknown",
            "techniques": row["techniques"] or "none seen",
            "licence": row["license"] or "none stated",
        },
        code=code,
        path=path,
        diff="\n".join(diff),
    )
