"""Generate docs/tables-verdicts.md: the statuses and flags of verdicts, and the judge's limits.

`make docs` runs `python -m evaluators.cli.reference`. Run it after a change of the sources:
evaluators/judging/flags.py, evaluators/limits/kinds.py, or the statuses in catalog.yaml.
"""

from __future__ import annotations

from pathlib import Path

from evaluators.judging.flags import FLAGS, NONEQUIVALENT
from evaluators.limits.kinds import LIMITS
from store.schema import catalog

PAGE = Path(__file__).parents[2] / "docs" / "tables-verdicts.md"
STATUSES = {
    "correct": "every compared answer is within tolerance",
    "incorrect": "an answer is wrong",
    "rejected": "the kernel broke a rule of the judge; the usual sign of cheating",
    "timeout": "a deadline passed",
    "crash": "the worker process died, or a call raised an error",
    "compile_error": "the kernel could not be imported, built or constructed",
    "evaluator_error": "a fault outside the kernel; the next run tries again",
}


def render_page() -> str:
    """Return the page: one table of statuses, one of flags, and one of limits."""
    allowed = catalog.load().enums["evaluation_reason"].allowed
    lines = [
        "# Statuses, flags and limits of the judge",
        "",
        "`make docs` writes this page. [evaluators](../evaluators/README.md) explains the terms.",
        "",
        "## Statuses",
        "",
        "| status | meaning | reasons |",
        "|---|---|---|",
    ]
    for status, meaning in STATUSES.items():
        reasons = ", ".join(f"`{reason}`" for reason in allowed[status] if reason != "unspecified")
        lines.append(f"| `{status}` | {meaning} | {reasons} |")
    lines += [
        "",
        "## Flags",
        "",
        "A flag is an observation that does not decide the verdict. Flags that start with `fails_`",
        "come from extra calls, with inputs or weights that the task itself would not generate. A",
        "timing session that ranks nothing counts as disturbed.",
        "",
        "| flag | meaning | effect |",
        "|---|---|---|",
    ]
    for flag, meaning in FLAGS.items():
        effect = "not equivalent" if flag in NONEQUIVALENT else ""
        lines.append(f"| `{flag}` | {meaning} | {effect} |")
    lines += [
        "",
        "## Limits",
        "",
        "A verdict that refuses a task or a kernel names its limit; `evaluators doctor --limits`",
        "prints them all. If the cause is `task`, the task breaks the rules of its format.",
        "",
        "| limit | the judge cannot judge | cause |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | {kind.sentence} | {kind.cause} |" for name, kind in LIMITS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(), "utf-8")
