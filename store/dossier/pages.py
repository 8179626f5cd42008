"""What a lake knows about one kernel, or about one task and its kernels."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.commandline.display import list_rows
from store.errors import FIRST_ROWS, UnknownName
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.location import Location
    from store.lake.reader import Lake


MOST_IDS = 6
"""Number of ids that choose_id needs to see: it lists all but the last one."""
_SHORT_NAME = re.compile(r"((?:.*/)?)[lL](\d+)-(\d+)", re.DOTALL)
_SHORTEST_PREFIX = 6
_LONGEST_SHOWN = 80
_MOST_COMPARED = 2_000
"""Number of names up to which a near one is looked for; this takes 0.07 ms for each."""
_MORE_CHARACTERS = 12
_HOW_TO_NAME_TASKS = (
    "Give a name such as level1/9 or L1-9, also with its suite (kernelbench/level1/9) and edition "
    f"(kernelbench@v0.1/level1/9), or the first {_SHORTEST_PREFIX} characters of an id."
)
_HOW_TO_NAME_KERNELS = (
    "Give the id of a kernel or its first characters. "
    '`store query "SELECT kernel_id, source FROM kernels LIMIT 5"` lists kernels.'
)


class TaskNames:
    """The names of some tasks. A task may have several names, and a name several tasks.

    >>> names = TaskNames([
    ...     {"task_id": "ab12cd34", "suite": "s", "suite_revision": "v1", "name": "level1/9"},
    ...     {"task_id": "ef56ab78", "suite": "s", "suite_revision": "v2", "name": "level1/9"}])
    >>> [row["task_id"] for row in names.match("L1-9")]
    ['ab12cd34', 'ef56ab78']
    >>> names.find("s@v2/level1/9")["task_id"], names.find("AB12CD")["suite_revision"]
    ('ef56ab78', 'v1')
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._tasks: dict[str, dict[str, Any]] = {}
        self._named: dict[str, dict[str, dict[str, Any]]] = {}
        for row in map(dict, rows):
            self._tasks[row["task_id"]] = row
            for name in _list_names(row):
                self._named.setdefault(name, {})[row["task_id"]] = row

    def match(self, wanted: str) -> list[dict[str, Any]]:
        """Return a row of each task with this id or name or, without one, with this id prefix."""
        if wanted in self._tasks:
            return [self._tasks[wanted]]
        start = wanted.lower()
        return list(self._named.get(expand_name(wanted), {}).values()) or [
            row
            for task_id, row in self._tasks.items()
            if len(start) >= _SHORTEST_PREFIX and task_id.startswith(start)
        ]

    def find(
        self, wanted: str, kind: str = "task", hint: str = _HOW_TO_NAME_TASKS
    ) -> dict[str, Any]:
        """Return the row of the one task with this id, name or id prefix; raises UnknownName."""
        tasks = self.match(wanted)
        if not tasks:
            known = {str(row["name"]) for named in self._named.values() for row in named.values()}
            if not known:
                raise UnknownName(f'no {kind} "{wanted[:_LONGEST_SHOWN]}"', FIRST_ROWS)
            if len(known) > _MOST_COMPARED:
                raise UnknownName(f'no {kind} "{wanted[:_LONGEST_SHOWN]}"', hint)
            error = UnknownName.among(kind, wanted[:_LONGEST_SHOWN], known)
            near = str(error.hint)
            raise UnknownName(
                error.message, f"{near} {hint}" if near.endswith("?") else f"{hint} {near}"
            )
        if len(tasks) > 1:
            length = max(_MORE_CHARACTERS, len(wanted) + _SHORTEST_PREFIX)
            listed = [f"{_list_names(row)[-1]} ({row['task_id'][:length]})" for row in tasks]
            raise _make_ambiguous(wanted, "tasks", listed, "Give one of these names or ids:")
        return tasks[0]


def expand_name(wanted: str) -> str:
    """Return the name level1/9 for its short form L1-9, and any other text as it is.

    Raises UnknownName if the text has bytes or surrogates that no name has.
    """
    try:
        wanted.encode()
    except UnicodeEncodeError:
        raise UnknownName(
            f"the name {wanted!a:.80} is not UTF-8", "Names and ids are texts in UTF-8."
        ) from None
    short = _SHORT_NAME.fullmatch(wanted)
    return f"{short[1]}level{short[2]}/{short[3]}" if short else wanted


def read_task_names(lake: Lake, wanted: str | None = None) -> TaskNames:
    """Read the names of all tasks, or only of those that a text names if there are any."""
    sql = read_sql(__file__, "names/tasks")
    if wanted is not None:
        names = TaskNames(lake.run(sql, {"wanted": expand_name(wanted)}).rows())
        if names.match(wanted):
            return names
    return TaskNames(lake.run(sql, {"wanted": None}).rows())


def find_task(lake: Lake, wanted: str) -> dict[str, Any]:
    """Return task_id, suite, suite_revision, name and title of the task that a user names.

    Args:
        lake: Where to look.
        wanted: Its name (level1/9, L1-9), its name after its suite (kernelbench/level1/9) or
            edition (kernelbench@v0.1/level1/9), its id, or at least 6 characters that the id
            begins with.

    Raises UnknownName if no such task, with near names, or several, with their names and ids.
    """
    return read_task_names(lake, wanted).find(wanted)


def choose_device(wanted: str, known: Sequence[str]) -> str:
    """Return the one known device model that a text names, in any case, with more words or fewer.

    Words are compared whole, since an A10 is no A100.

    >>> [choose_device(name, ["H200", "NVIDIA A100"]) for name in ("h200", "NVIDIA H200", "a100")]
    ['H200', 'H200', 'NVIDIA A100']
    >>> choose_device("A10", ["A100"])
    'A10'
    """
    words = {name: set(re.findall(r"[^\W_]+", name.lower())) for name in (wanted, *known)}
    asked = words[wanted]
    near = [name for name in known if asked and (asked <= words[name] or words[name] <= asked)]
    return near[0] if len(near) == 1 and wanted not in known else wanted


def find_kernel(
    lake: Lake, wanted: str, kind: str = "kernel", hint: str = _HOW_TO_NAME_KERNELS
) -> str:
    """Return the one kernel id that begins with a text; raises UnknownName."""
    return choose_id(kind, wanted, list_kernels(lake, wanted), hint)


def list_kernels(lake: Lake, wanted: str) -> list[str]:
    """Return the first kernel ids that begin with a text."""
    start = expand_name(wanted).lower()
    rows = lake.run(read_sql(__file__, "names/kernels"), {"start": start}).rows()
    return [str(row["kernel_id"]) for row in rows]


def list_runs(lake: Lake, wanted: str) -> list[str]:
    """Return the ids of the first runs with a name, or with an id that begins with it."""
    rows = lake.run(read_sql(__file__, "names/runs"), {"wanted": wanted}).rows()
    return [str(row["run_id"]) for row in rows]


def find_run(lake: Lake, wanted: str) -> str:
    """Return the id of the one run with a name, or with an id that begins with it.

    Raises UnknownName.
    """
    hint = '`store query "SELECT run_id, kind, name FROM runs"` lists runs.'
    return choose_id("run", wanted, list_runs(lake, wanted), hint)


def choose_id(kind: str, wanted: str, ids: Sequence[str], hint: str) -> str:
    """Return the id that is a text, or the only one that begins with it; raises UnknownName.

    Args:
        kind: What has the ids, such as kernel.
        wanted: What the user wrote.
        ids: Ids that begin with it: all of them, or the first MOST_IDS.
        hint: What to do where there is none.
    """
    if not wanted or not ids:
        raise UnknownName(f'no {kind} "{wanted[:_LONGEST_SHOWN]}"', hint)
    exact = [one for one in ids if one in (wanted, wanted.lower())]
    if len(ids) > 1 and not exact:
        listed = [one[: len(wanted) + _MORE_CHARACTERS] for one in ids]
        raise _make_ambiguous(wanted, "ids", listed, "Give more characters of an id, such as")
    return (exact or ids)[0]


def _list_names(row: Mapping[str, Any]) -> list[str]:
    name, suite = str(row["name"]), row.get("suite")
    return [name, f"{suite}/{name}", f"{suite}@{row['suite_revision']}/{name}"] if suite else [name]


def _make_ambiguous(wanted: str, kinds: str, listed: Sequence[str], hint: str) -> UnknownName:
    shown = MOST_IDS - 1
    count = f"more than {shown}" if len(listed) > shown else str(len(listed))
    return UnknownName(
        f'"{wanted[:_LONGEST_SHOWN]}" is ambiguous: it matches {count} {kinds}',
        f"{hint} {', '.join(listed[:shown])}{' …' if len(listed) > shown else ''}",
    )


@dataclass(frozen=True, kw_only=True)
class JudgedHere:
    """How many kernels that a lake has judged last, on one device, are correct and rank there."""

    device: str
    correct: int
    ranking: int
    reason: str | None
    """Why most of the others do not rank; None if all rank."""

    def __str__(self) -> str:
        """Return it in a sentence.

        >>> str(JudgedHere(device="H200", correct=2, ranking=0, reason="too short for the clock"))
        'none of 2 correct kernels ranks on H200; main reason: too short for the clock'
        """
        if self.ranking:
            text = f"{self.ranking} of {self.correct} correct kernels rank on {self.device}"
        else:
            text = f"none of {self.correct} correct kernels ranks on {self.device}"
        if self.reason is not None:
            return f"{text}; main reason{' of the others' * (self.ranking > 0)}: {self.reason}"
        why = ", because their sessions were undisturbed and long enough for the clock"
        return text + why * (self.ranking > 0)


def read_judged_here(lake: Lake) -> JudgedHere | None:
    """Read what became of the kernels that a lake has judged last; None if it has judged none."""
    [row] = lake.run(read_sql(__file__, "judged_here")).rows()
    return None if row["device"] is None else JudgedHere(**row)


Kind: TypeAlias = Literal["task", "kernel", "run"]
SECTIONS: dict[Kind, dict[str, str]] = {
    "kernel": {
        "Origin": "origins",
        "Evaluations": "evaluations",
        "Speedups": "speedups",
        "Analyses": "analyses",
        "Claims": "claims",
        "Findings": "findings",
        "Lineage": "lineage",
        "Datasets": "datasets",
    },
    "task": {
        "Claimed": "claims",
        "Judged": "evaluations",
        "Measured": "speedups",
        "Findings": "findings",
    },
    "run": {"Ends": "ends", "Rows": "rows", "Options": "options"},
}
"""Title of each section of a page, and its query."""
_START_OF_ID = re.compile("[0-9a-f-]+")
_HOW_TO_SHOW = (
    "Give the name of a task, such as level1/9 or L1-9, or of a run, or the first characters of an "
    'id of a kernel or run. `store query "SELECT kernel_id, source FROM kernels LIMIT 5"` lists '
    'kernels, `store query "FROM run_states"` lists runs. `evaluators check FILE --task TASK` '
    "judges a file."
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """One task, kernel or run, and one table per section."""

    kind: Kind
    row: dict[str, Any]
    """The label of the task with its code; the kernel with its features; the run with its state,
    and what its lease says."""
    sections: dict[str, pa.Table]

    def list_sections(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each section, by its title in small letters."""
        return {title.lower(): list_rows(rows) for title, rows in self.sections.items()}


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """One kernel and every edge on the paths back to the first kernels it was made from."""

    kernel_id: str
    edges: pa.Table
    """child_kernel_id, relation (exemplar or parent), parent_kernel_id, their distances from the
    kernel, score as shown, attempts, policy, run, step, written_at, quarantined (the parent)."""


def read_page(lake: Lake, wanted: str) -> Page:
    """Read the page of a task (level1/9, L1-9) or run by its name, or of a kernel or run by its id.

    Raises UnknownName if no task, kernel or run matches, or more than one.
    """
    kinds = "task, kernel or run"
    names = read_task_names(lake, wanted)
    is_start = _START_OF_ID.fullmatch(expand_name(wanted).lower())
    runs = [] if names.match(wanted) else list_runs(lake, wanted)
    if names.match(wanted) or not (runs or is_start):
        return _read_page(lake, "task", names.find(wanted, kinds, _HOW_TO_SHOW))
    kernels = list_kernels(lake, wanted) if is_start else []
    chosen = choose_id(kinds, wanted, [*kernels, *runs], _HOW_TO_SHOW)
    if chosen in kernels:
        return read_kernel_page(lake, chosen)
    row = lake.run(read_sql(__file__, "run/run"), {"run_id": chosen}).one()
    assert row is not None
    return _read_page(lake, "run", row | {"state": find_state(lake.location, row)})


def read_task_page(lake: Lake, wanted: str) -> Page:
    """Read the page of the task that `find_task` finds; raises UnknownName."""
    return _read_page(lake, "task", find_task(lake, wanted))


def read_kernel_page(lake: Lake, prefix: str) -> Page:
    """Read the page of the kernel whose id begins with `prefix`.

    Raises UnknownName unless exactly one kernel id begins with it.
    """
    kernel_id = find_kernel(lake, prefix)
    row = lake.run(read_sql(__file__, "kernel/kernel"), {"kernel_id": kernel_id}).one()
    assert row is not None
    return _read_page(lake, "kernel", row)


def find_ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Find the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName unless exactly one kernel id begins with `prefix`.
    """
    kernel_id = find_kernel(lake, prefix)
    edges = lake.run(read_sql(__file__, "kernel/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


def _read_page(lake: Lake, kind: Kind, row: dict[str, Any]) -> Page:
    key = f"{kind}_id"
    if kind == "task":
        code = lake.run("SELECT code FROM tasks WHERE task_id = $task_id", {key: row[key]}).rows()
        row = row | code[0]
    sections = {
        title: lake.run(read_section(kind, title), {key: row[key]}).arrow()
        for title in SECTIONS[kind]
    }
    return Page(kind=kind, row=row, sections=sections)


def read_section(kind: Kind, title: str) -> str:
    """Return the query of a section of a page."""
    return read_sql(__file__, f"{kind}/{SECTIONS[kind][title]}")


def find_state(location: Location, run: Mapping[str, Any]) -> str:
    """Return the state of a run in words; the lease of an open one tells whether it still runs.

    Args:
        run: run_id, and the state and host that the view run_states has at some snapshot.

    Raises LakeUnreachable if the server that keeps the leases does not answer.
    """
    if run["state"] != "open":
        return str(run["state"])
    # Ask before reading again: a run stores its end before it gives up its lease.
    if location.find_held([run["run_id"]]):
        return "running"
    from store.lake.reader import Lake

    with Lake(location) as newest:
        row = newest.run("SELECT state FROM run_states WHERE run_id = $1", [run["run_id"]]).one()
    if row is not None and row["state"] != "open":
        return f"open at this snapshot, and {row['state']} since"
    if location.sees_every_host:
        return "killed (its process is gone, or has lost its connection to the database)"
    if run["host"] not in (None, platform.node()):
        return f"open on another host, {run['host']}, which alone knows whether it still runs"
    return "killed (its process is gone)"
