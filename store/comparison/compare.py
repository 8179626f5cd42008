"""A/B comparisons of stored samples: paired by task and shape, with an interval over tasks."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.commandline.echo import count_nouns
from store.commandline.escape import escape_terminal, quote_name
from store.dossier.pages import choose_device
from store.errors import FIRST_ROWS, FlywheelError, UnknownName, name_condition
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from cyclopts import Token

    from store.lake.reader import Lake

By: TypeAlias = Literal["author", "judge-version", "host", "device"]
RESOLUTION = 0.05
"""Difference that a comparison should find, unless another one is asked for."""
_COVER = 1.959964
"""Standard deviations of a normal distribution on each side that cover 95 %."""
_FIND = 0.841621
"""Standard deviations that four of five draws exceed, on one side."""
SETTING = ("device", "baseline", "clock", "precision", "threads")
WHERE_COLUMNS = ("task", "suite", "suite_revision", "level", "family", "workload", *SETTING)
"""Columns of pairs that a condition may use."""
KEY_COLUMNS = (
    "task", "workload", "ratio", "ratio_low", "ratio_high", "speedup_a", "speedup_b",
)  # fmt: skip
_NUMBERS = frozenset({"level", "threads"})
_SHOWN_SETTINGS = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How many times as fast as A's kernels B's are, by the speedups of both."""

    by: By
    a: str
    b: str
    names: dict[str, str]
    """Names of A and B for people; those of authors differ from their ids."""
    snapshot: int
    setting: dict[str, Any]
    """What both sides have in common: device, baseline, clock, precision, threads (on a CPU)."""
    other_settings: list[dict[str, Any]]
    """Settings that also have pairs, with their numbers of tasks."""
    judge_versions: dict[str, list[int]]
    """Versions of the judge that timed each side."""
    tasks: int
    sessions: dict[str, int]
    """Timing sessions of each side."""
    attempts: dict[str, int] | None
    """Attempts of each author at these tasks: the best of more attempts is faster by chance."""
    ratio: float
    """Geometric mean over tasks of B's speedup over A's."""
    ratio_low: float
    ratio_high: float
    ratio_missing_as_1: float | None
    """The same with a speedup of 1 where an author has no correct kernel."""
    tasks_missing_as_1: int | None
    resolved: float
    """Smallest difference that these tasks and sessions detect in 80 % of cases: 0.05 is 5 %."""
    resolution: float
    more_tasks: int | None
    """Further tasks that `resolution` needs; None after a single task, which tells of no other."""
    more_sessions: int | None
    """Further sessions of these tasks that would do as well; None where no number would."""
    left_out: dict[str, int]
    """Tasks that are not compared, by reason."""
    pairs: pa.Table
    """One row per pair, the largest ratio first."""
    left_out_tasks: pa.Table

    def __str__(self) -> str:
        """Return the comparison as text."""
        from store.commandline.display import render_text

        lines = map(escape_terminal, self.describe())
        return "\n".join([*lines, render_text(self.pairs, KEY_COLUMNS, 100)])

    def describe(self) -> list[str]:
        """Return everything but the pairs in lines."""
        lines = [
            f"A is {self.by} {self.names['a']}, B is {self.by} {self.names['b']}",
            f"B / A = {self.ratio:.3f}x, between {self.ratio_low:.3f}x and {self.ratio_high:.3f}x: "
            f"{count_nouns(self.tasks, 'task')}, {count_nouns(self.pairs.num_rows, 'pair')}, "
            f"{self.sessions['a']} + {self.sessions['b']} sessions",
        ]
        if self.ratio_missing_as_1 is not None:
            lines.append(
                f"with 1x for no correct kernel: {self.ratio_missing_as_1:.3f}x over "
                f"{count_nouns(self.tasks_missing_as_1 or 0, 'task')}"
            )
        if self.attempts is not None:
            a, b = self.attempts["a"], self.attempts["b"]
            unequal = "; --attempts N compares the first N at each task" * (a != b)
            lines.append(f"attempts at these tasks: A {a}, B {b}{unequal}")
        lines.append(f"same on both sides: {_list_setting(self.setting)}")
        versions = [", ".join(map(str, self.judge_versions[side])) for side in "ab"]
        lines.append(f"version of the judge: A {versions[0]}; B {versions[1]}")
        needs = [
            count_nouns(number, noun)
            for number, noun in (
                (self.more_tasks, "more task"),
                (self.more_sessions, "more session"),
            )
            if number is not None
        ]
        if self.resolved > self.resolution:
            told = f"needs {' or '.join(needs) or 'other tasks'}"
        else:
            told = "needs no more"
        lines.append(
            f"resolution: detects {100 * self.resolved:.3g} % in 4 of 5 cases; "
            f"{100 * self.resolution:.3g} % {told}"
        )
        if self.left_out:
            parts = (f"{count} {reason}" for reason, count in self.left_out.items())
            lines.append(f"tasks left out: {', '.join(parts)}")
        lines += [
            f"also measured: {count_nouns(other['tasks'], 'task')} with {_list_setting(other)} "
            "(--where)"
            for other in self.other_settings[:_SHOWN_SETTINGS]
        ]
        return lines


def compare(
    lake: Lake,
    by: By,
    a: str,
    b: str,
    *,
    where: str | None = None,
    attempts: int | None = None,
    resolution: float = RESOLUTION,
) -> Comparison:
    """Compare the speedups of two authors, judge versions, hosts or devices of a lake.

    Pairs have one task, shape, device, baseline, clock and precision. Authors are compared by the
    best kernel of each, by the lower bound of its speedup; otherwise both sides have the same
    kernel. The interval covers 95 % over tasks: it has the differences between tasks, and the
    errors and the spread of timing sessions.

    Args:
        lake: Where both were measured.
        by: What A and B are.
        a: Name or id of an author, version of the judge, host name, or device model.
        b: The other one. A ratio above 1 says that its kernels are faster.
        where: SQL condition on `WHERE_COLUMNS`; it also chooses between settings. Without one, the
            setting with the most tasks is compared.
        attempts: Count only the first attempts of each author at each task.
        resolution: Difference to plan for; see `plan`.

    Raises:
        UnknownName: there is no A or B.
        FlywheelError: they are the same, or have nothing in common.
    """
    if not 0 < resolution < 1:
        raise FlywheelError(
            f"a resolution of {resolution:g} is not between 0 and 1", "5 % is 0.05."
        )
    if attempts is not None and by != "author":
        raise FlywheelError(f"a {by} makes no attempts", "Only authors are compared by attempts.")
    found_sides = {side: _find_side(lake, by, wanted) for side, wanted in (("a", a), ("b", b))}
    sides = {side: key for side, (key, _) in found_sides.items()}
    names = {side: name for side, (_, name) in found_sides.items()}
    if sides["a"] == sides["b"]:
        raise FlywheelError(f"A and B are the same {by}: {names['a']}", "Name two different ones.")
    # Nothing was attempted by a device.
    authors = sides if by == "author" else {"a": None, "b": None}
    lake.keep("_attempted", read_sql(__file__, "attempted"), authors | {"attempts": attempts})
    if by == "judge-version":
        lake.keep("_sessions", read_sql(__file__, "sessions_of_versions"), sides)
    else:
        lake.keep("_sessions", read_sql(__file__, "sessions"), sides | {"by": by})
    lake.keep("_measured", read_sql(__file__, "measured"), {"by": by})
    lake.keep("_all_pairs", read_sql(__file__, "pairs"), {"by": by, "attempts": attempts})
    condition = "true"
    if where is not None:
        condition = f"({where}\n)"
        # The guard knows no temporary tables: it checks the condition on a row of the same columns.
        columns = (
            f'NULL::{"INTEGER" if name in _NUMBERS else "VARCHAR"} AS "{name}"'
            for name in WHERE_COLUMNS
        )
        row = ", ".join(columns)
        with name_condition(where):
            lake.sql(f"SELECT * FROM (SELECT {row}) AS pairs WHERE {condition}").arrow()
    lake.keep("_pairs", f"SELECT * FROM _all_pairs AS pairs WHERE {condition}")
    found = lake.run(read_sql(__file__, "settings")).rows()
    setting = {name: found[0][name] if found else None for name in SETTING}
    lake.keep("_compared", read_sql(__file__, "compared"), setting)
    out = lake.run(
        read_sql(__file__, "left_out"), sides | setting | {"by": by, "attempts": attempts}
    ).arrow()
    reasons = dict(Counter(map(str, out["reason"].to_pylist())).most_common())
    if not found:
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        raise FlywheelError(
            f"{by} {names['a']} (A) and {names['b']} (B) have no task in common to compare",
            f'Tasks left out: {told}. `store query "FROM unranked_sessions"` says why sessions do '
            "not rank."
            if told
            else FIRST_ROWS,
        )
    [overall] = lake.run(read_sql(__file__, "overall")).rows()
    plan = plan_comparison(
        tasks=overall["tasks"],
        between=overall["between"],
        within=overall["within"],
        sessions=overall["sessions_a"] + overall["sessions_b"],
        resolution=resolution,
    )
    failed = [row for row in out.to_pylist() if row["failed"]] if by == "author" else []
    added = [math.log((row["speedup_b"] or 1.0) / (row["speedup_a"] or 1.0)) for row in failed]
    total = overall["tasks"] + len(added)
    pairs = lake.run("FROM _compared ORDER BY ratio DESC, task, workload, kernel_id_b").arrow()
    reach = plan.quantile * plan.error
    return Comparison(
        by=by,
        a=sides["a"],
        b=sides["b"],
        names=names,
        snapshot=lake.snapshot,
        setting={name: value for name, value in setting.items() if value is not None},
        other_settings=[
            {name: value for name, value in other.items() if value is not None}
            for other in found[1:]
        ],
        judge_versions={side: overall[f"judge_versions_{side}"] for side in "ab"},
        tasks=overall["tasks"],
        sessions={side: overall[f"sessions_{side}"] for side in "ab"},
        attempts={side: overall[f"attempts_{side}"] for side in "ab"} if by == "author" else None,
        ratio=math.exp(overall["mean"]),
        ratio_low=math.exp(overall["mean"] - reach),
        ratio_high=math.exp(overall["mean"] + reach),
        ratio_missing_as_1=math.exp((overall["mean"] * overall["tasks"] + sum(added)) / total)
        if added
        else None,
        tasks_missing_as_1=total if added else None,
        resolved=plan.resolved,
        resolution=resolution,
        more_tasks=plan.more_tasks,
        more_sessions=plan.more_sessions,
        left_out=reasons,
        pairs=pairs.drop_columns(["variance"]),
        left_out_tasks=out.drop_columns(["failed"]),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How sure a mean over tasks is, and what would make it surer."""

    error: float
    """Standard error of the mean."""
    quantile: float
    """Standard errors on each side that cover 95 %."""
    resolved: float
    more_tasks: int | None
    more_sessions: int | None


def plan_comparison(
    *, tasks: int, between: float | None, within: float, sessions: int, resolution: float
) -> Plan:
    """Return the error of the mean of paired log ratios, and what a resolution needs.

    The variance of one task's mean has two parts: that of its sessions (`within`), and that of the
    true ratios of tasks, which is what `between` has beyond it (the estimate of a one-way analysis
    of variance, at least 0). The mean over n tasks has (true + within) / n, with Student's t of
    n - 1 degrees of freedom; one task has only its sessions, and the normal distribution.

    A two-sided test at 5 % finds a difference d, a logarithm, with a probability of 80 % if d is
    t.975 + z.8 standard errors. That takes n = (z.975 + z.8)^2 * variance / d^2 + z.975^2 / 2 tasks
    (W. C. Guenther, "Sample size formulas for normal theory t tests", The American Statistician
    35, 1981; z are normal quantiles, and the last term stands for t). k times as many sessions
    divide `within` by k: the same formula, solved for k, says how many do as well, unless the true
    differences alone are too large.

    >>> plan = plan_comparison(tasks=10, between=0.01, within=0.004, sessions=40, resolution=0.05)
    >>> round(plan.error, 4), round(plan.quantile, 3), plan.more_tasks, plan.more_sessions
    (0.0316, 2.262, 25, None)
    >>> plan = plan_comparison(tasks=30, between=0.01, within=0.009, sessions=60, resolution=0.05)
    >>> round(plan.resolved, 3), plan.more_tasks, plan.more_sessions
    (0.054, 5, 12)
    """
    target = math.log1p(resolution) / (_COVER + _FIND)
    # Guenther's last term, which the single task does not have.
    lost = _COVER**2 / 2 if tasks > 1 else 0.0
    variance = within if between is None else max(between, within)
    error = math.sqrt(variance / tasks)
    quantile = _COVER if between is None else find_student_quantile(tasks - 1)
    resolved = math.expm1((quantile + _FIND) * error)
    # With few tasks, Guenther's term is not all of what t adds.
    least = int(resolved > resolution)
    needed = math.ceil(variance / target**2 + lost)
    allowed = (tasks - lost) * target**2 - (variance - within)
    return Plan(
        error=error,
        quantile=quantile,
        resolved=resolved,
        more_tasks=None if between is None else max(least, needed - tasks),
        more_sessions=max(least, math.ceil(sessions * (within / allowed - 1)))
        if allowed > 0
        else None,
    )


def find_student_quantile(freedom: int) -> float:
    """Return how many standard errors cover 95 % by Student's t.

    Exact for 1 and 2 degrees of freedom; from 3, the series of Abramowitz and Stegun, Handbook of
    Mathematical Functions, 26.7.5, as in the view technique_wins.

    >>> [round(find_student_quantile(n), 2) for n in (1, 2, 3, 4, 10, 100)]
    [12.71, 4.3, 3.18, 2.78, 2.23, 1.98]
    """
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 / math.sqrt(2 * 0.975 * 0.025)
    terms = (1.959964, 2.372271, 2.822502, 2.555857, 1.589536)
    return sum(term / freedom**power for power, term in enumerate(terms))


def parse_share(_: type, tokens: Sequence[Token]) -> float:
    """Return the share that an option states, such as 5% or 0.05; raises ValueError."""
    text = tokens[0].value
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


def _find_side(lake: Lake, by: By, wanted: str) -> tuple[str, str]:
    """Return id and name of the author, version of the judge, host or device that a text names."""
    if by == "author":
        rows = lake.run("SELECT policy_id, name FROM policies ORDER BY ALL").rows()
        authors = {str(row["policy_id"]): str(row["name"]) for row in rows}
        ids = [wanted] if wanted in authors else [key for key in authors if authors[key] == wanted]
        if not ids:
            raise UnknownName.among(by, wanted, {*authors, *authors.values()})
        if len(ids) > 1:
            raise UnknownName(
                f"{len(ids)} authors have the name {quote_name(wanted)}",
                f"Give an id: {', '.join(ids[:6])}",
            )
        return ids[0], authors[ids[0]]
    column = {"judge-version": "evaluator_version", "host": "host", "device": "name"}[by]
    table = "evaluations" if by == "judge-version" else "devices"
    query = f"SELECT DISTINCT {column} AS side FROM {table} WHERE {column} IS NOT NULL"
    known = [str(row["side"]) for row in lake.run(query).rows()]
    chosen = choose_device(wanted, known) if by == "device" else wanted
    if chosen not in known:
        raise UnknownName.among(by.replace("-", " "), wanted, known)
    return chosen, chosen


def _list_setting(setting: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items() if name != "tasks")
