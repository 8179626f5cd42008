"""Generate the reference tables in evaluators/README.md: statuses, flags and limits.

`make docs` runs `python -m evaluators.cli.reference`. Run it after a change of the sources:
evaluators/judging/flags.py, evaluators/limits/kinds.py, or the statuses in catalog.yaml.
"""

from __future__ import annotations

from pathlib import Path

from evaluators.judging.flags import FLAGS, NONEQUIVALENT
from evaluators.limits.kinds import LIMITS
from store.schema import catalog

_README = Path(__file__).parents[1] / "README.md"
_STATUSES = {
    "correct": "every compared answer is within tolerance",
    "incorrect": "an answer is wrong",
    "rejected": "the kernel broke a rule of the judge; the usual sign of cheating",
    "timeout": "a deadline passed",
    "crash": "the worker process died, or a call raised an error",
    "compile_error": "the kernel could not be imported, built or constructed",
    "evaluator_error": "a fault outside the kernel; the next run tries again",
}


def statuses_table() -> str:
    """Return the statuses of `evaluations`, with the reasons that catalog.yaml allows for each."""
    allowed = catalog.load().enums["evaluation_reason"].allowed
    lines = ["| status | meaning | reasons |", "|---|---|---|"]
    for status, meaning in _STATUSES.items():
        reasons = ", ".join(f"`{reason}`" for reason in allowed[status] if reason != "unspecified")
        lines.append(f"| `{status}` | {meaning} | {reasons} |")
    return "\n".join(lines)


def flags_table() -> str:
    """Return every flag with its meaning; marks the flags of kernels that are not equivalent."""
    lines = ["| flag | meaning | effect |", "|---|---|---|"]
    for flag, meaning in FLAGS.items():
        effect = "not equivalent" if flag in NONEQUIVALENT else ""
        lines.append(f"| `{flag}` | {meaning} | {effect} |")
    return "\n".join(lines)


def limits_table() -> str:
    """Return every kind that the judge cannot judge."""
    lines = ["| limit | the judge cannot judge | cause |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind.sentence} | {kind.cause} |" for name, kind in LIMITS.items()]
    return "\n".join(lines)


def fill_tables(page: str) -> str:
    """Replace the text between each pair of markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises ValueError: the page lacks a marker.
    """
    tables = {"statuses": statuses_table(), "flags": flags_table(), "limits": limits_table()}
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"the page lacks the markers <!-- {name} --> and <!-- /{name} -->")
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = before + begin + table + end + after
    return page


if __name__ == "__main__":
    _README.write_text(fill_tables(_README.read_text("utf-8")), "utf-8")
