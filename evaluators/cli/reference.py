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
STATUSES = {
    "correct": "every compared answer is within tolerance",
    "incorrect": "an answer is wrong",
    "rejected": "the kernel broke a rule of the judge; the usual sign of cheating",
    "timeout": "a deadline passed",
    "crash": "the worker process died, or a call raised an error",
    "compile_error": "the kernel could not be imported, built or constructed",
    "evaluator_error": "a fault outside the kernel; the next run tries again",
}


def fill_tables(page: str) -> str:
    """Replace the text between each pair of markers `<!-- NAME -->` and `<!-- /NAME -->`.

    Raises ValueError: the page lacks a marker.
    """
    allowed = catalog.load().enums["evaluation_reason"].allowed
    statuses = ["| status | meaning | reasons |", "|---|---|---|"]
    for status, meaning in STATUSES.items():
        reasons = ", ".join(f"`{reason}`" for reason in allowed[status] if reason != "unspecified")
        statuses.append(f"| `{status}` | {meaning} | {reasons} |")
    flags = ["| flag | meaning | effect |", "|---|---|---|"]
    for flag, meaning in FLAGS.items():
        effect = "not equivalent" if flag in NONEQUIVALENT else ""
        flags.append(f"| `{flag}` | {meaning} | {effect} |")
    limits = ["| limit | the judge cannot judge | cause |", "|---|---|---|"]
    limits += [f"| `{name}` | {kind.sentence} | {kind.cause} |" for name, kind in LIMITS.items()]
    for name, lines in {"statuses": statuses, "flags": flags, "limits": limits}.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- /{name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"the page lacks the markers <!-- {name} --> and <!-- /{name} -->")
        before, _, rest = page.partition(begin)
        page = before + begin + "\n".join(lines) + end + rest.partition(end)[2]
    return page


if __name__ == "__main__":
    _README.write_text(fill_tables(_README.read_text("utf-8")), "utf-8")
