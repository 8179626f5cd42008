"""The page of `store show`: what a lake knows about one kernel, or one task and its kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.code.languages import find_fence
from store.commandline import display, echo
from store.commandline.escape import escape_lines, escape_terminal, quote_name
from store.errors import UnknownName
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from store.lake.reader import Lake

# Title of each section, its query, and the text where it has no rows.
_SECTIONS = {
    "Origin": ("origins", "no generation has written it"),
    "Evaluations": ("evaluations", "not judged yet (evaluators run --kernel ID)"),
    "Speedups": ("speedups", "not measured yet"),
    "Analyses": ("analyses", "none"),
    "Claims": ("claims", "none"),
    "Findings": ("findings", "none"),
    "Lineage": ("lineage", "none"),
    "Datasets": ("datasets", "none contains it"),
}


_TASK_SECTIONS = {
    "Claimed": ("claims", "nothing published"),
    "Judged": ("evaluations", "not judged yet (evaluators run)"),
    "Measured": ("speedups", "not measured yet"),
    "Findings": ("findings", "none to look at (evaluators audit)"),
}
SHOWN_LEVELS = 16
"""Number of levels of the tree of ancestors that is printed; JSON has all levels."""
_SHORT_NAME = re.compile(r"[lL](\d+)-(\d+)")
_LISTED_IDS = 5
_ID_PREFIX = re.compile(r"[0-9a-f]+")
_HOW_TO_SHOW = (
    "Give the name of a task, such as level1/9 or L1-9, or the id of a kernel or its first "
    'characters. `store query "SELECT kernel_id, source FROM kernels LIMIT 5"` lists kernels.'
)


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """One task: its label, and one table per section about the kernels for it."""

    task: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class KernelPage:
    """One kernel: its row and features, and one table per section."""

    kernel: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """One kernel and every edge on the paths back to the first kernels it was made from."""

    kernel_id: str
    edges: pa.Table
    """child_kernel_id, relation (exemplar or parent), parent_kernel_id, their distances from the
    kernel, score as shown, attempts, policy, run, step, written_at, quarantined (the parent)."""


def find_ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Find the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName unless exactly one kernel id begins with `prefix`.
    """
    kernel_id = _find_kernel_id(lake, prefix)
    edges = lake.run(read_sql(__file__, "show/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


def read_page(lake: Lake, wanted: str) -> KernelPage | TaskPage:
    """Read the page of a task, by its name (level1/9, L1-9), or of a kernel, by its id.

    Raises UnknownName if no task or kernel matches, or more than one.
    """
    short = _SHORT_NAME.fullmatch(wanted)
    name = f"level{short[1]}/{short[2]}" if short else wanted
    rows = lake.run(read_sql(__file__, "task/find"), {"wanted": name}).rows()
    tasks = {row["task_id"]: row for row in rows}
    if not tasks:
        return _read_kernel_page(lake, _find_kernel_id(lake, wanted, "task or kernel"))
    if len(tasks) > 1:
        listed = ", ".join(
            f"{r['suite']} {r['suite_revision']}: {i[:12]}" for i, r in tasks.items()
        )
        raise UnknownName(
            f'"{wanted}" is ambiguous: it is the name of {len(tasks)} tasks',
            f"Give the id of one: {listed}"[:300],
        )
    [(task_id, row)] = tasks.items()
    sections = {
        title: lake.run(read_sql(__file__, f"task/{query}"), {"task_id": task_id})
        for title, (query, _) in _TASK_SECTIONS.items()
    }
    return TaskPage(task=row, sections={title: rows.arrow() for title, rows in sections.items()})


def read_kernel_page(lake: Lake, prefix: str) -> KernelPage:
    """Read the page of the kernel whose id begins with `prefix`.

    Raises UnknownName unless exactly one kernel id begins with it.
    """
    return _read_kernel_page(lake, _find_kernel_id(lake, prefix))


def _read_kernel_page(lake: Lake, kernel_id: str) -> KernelPage:
    arguments = {"kernel_id": kernel_id}
    row = lake.run(read_sql(__file__, "show/kernel"), arguments).one()
    assert row is not None
    sections = {
        title: lake.run(read_sql(__file__, f"show/{query}"), arguments).arrow()
        for title, (query, _) in _SECTIONS.items()
    }
    return KernelPage(kernel=row, sections=sections)


def _find_kernel_id(lake: Lake, prefix: str, kinds: str = "kernel") -> str:
    """Return the one kernel id that begins with a prefix; raises UnknownName."""
    normal = prefix.lower()
    ids: list[str] = []
    if _ID_PREFIX.fullmatch(normal):
        ids = [
            row["kernel_id"]
            for row in lake.run(read_sql(__file__, "show/find"), {"prefix": normal}).rows()
        ]
    if not ids:
        raise UnknownName(f'no {kinds} "{prefix}"', _HOW_TO_SHOW)
    if len(ids) > 1:
        listed = ", ".join(one[:12] for one in ids[:_LISTED_IDS])
        more = len(ids) > _LISTED_IDS
        raise UnknownName(
            f'"{prefix}" is ambiguous: it matches {"more than " if more else ""}'
            f"{min(len(ids), _LISTED_IDS)} kernels",
            f"Give more characters of an id, such as {listed}{' …' if more else ''}",
        )
    return ids[0]


def print_page(page: KernelPage | TaskPage | Ancestry, form: str) -> None:
    """Print a page as text and tables, or as one JSON object."""
    if isinstance(page, Ancestry):
        if form == "json":
            whole = {"kernel_id": page.kernel_id, "edges": page.edges.to_pylist()}
            echo.print_json(whole)
        else:
            _print_ancestry(page)
    elif form == "json":
        about = page.task if isinstance(page, TaskPage) else page.kernel
        tables = {title.lower(): rows.to_pylist() for title, rows in page.sections.items()}
        echo.print_json(about | tables)
    elif isinstance(page, TaskPage):
        _print_task(page)
    else:
        _print_kernel(page)


def _print_kernel(page: KernelPage) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    console = echo.open_console()
    row = page.kernel
    console.print(Text(f"kernel {row['kernel_id']}", style="bold"))
    facts = [row["language"], *(row["techniques"] or []), row["license"] or "no license stated"]
    console.print(Text(escape_terminal(", ".join(str(fact) for fact in facts if fact))))
    _print_sections(console, page.sections, _SECTIONS)
    for path, code in [(row["path"], row["code"])] + [
        (file["path"], file["code"]) for file in row["other_files"] or []
    ]:
        console.print(Text(f"\nfile {quote_name(path)}", style="bold"))
        language = find_fence(path) or "python"
        shown = "\n".join(escape_lines(code, prefix=""))
        console.print(Syntax(shown, language, line_numbers=True, background_color="default"))


def _print_ancestry(page: Ancestry) -> None:
    """Print the paths back as a tree. Each kernel is expanded once, where it is nearest."""
    from rich.text import Text
    from rich.tree import Tree

    console = echo.open_console()
    root = Tree(Text(f"kernel {page.kernel_id[:12]}", style="bold"))
    branches = {page.kernel_id: root}
    beyond: set[str] = set()
    for edge in page.edges.to_pylist():
        parent, branch = edge["parent_kernel_id"], branches.get(edge["child_kernel_id"])
        if branch is None:
            beyond.add(edge["child_kernel_id"])
            continue
        known = parent in branches
        elsewhere = " (expanded elsewhere)" if known else ""
        line = branch.add(Text(escape_terminal(_edge(edge) + elsewhere)))
        if not known and edge["parent_distance"] < SHOWN_LEVELS:
            branches[parent] = line
    console.print(root)
    if page.edges.num_rows == 0:
        console.print(Text("no parent, and no exemplar in its prompts"))
    if beyond:
        console.print(
            Text(f"{len(beyond)} kernels further back have more ancestors: --format json lists all")
        )


def _edge(edge: Mapping[str, Any]) -> str:
    """Return one line about an edge: what the parent was, its score as shown, and to whom."""
    score = "" if edge["score"] is None else f"shown as {edge['score']:.2f}x"
    step = "" if edge["step"] is None else f"step {edge['step']}"
    facts = [
        score,
        edge["policy"] and f"{'to' if score else 'by'} {edge['policy']}",
        edge["run"],
        step,
        f"{edge['attempts']} attempts" if edge["attempts"] > 1 else "",
        "quarantined" if edge["quarantined"] else "",
    ]
    listed = ", ".join(str(fact) for fact in facts if fact)
    return f"{edge['relation']} {edge['parent_kernel_id'][:12]} {listed}".rstrip()


def _print_task(page: TaskPage) -> None:
    from rich.text import Text

    console = echo.open_console()
    row = page.task
    title = f"task {row['suite']} {row['suite_revision']} {row['name']}"
    about = f"{title}: {row['title'] or row['task_id'][:12]}"
    console.print(Text(escape_terminal(about), style="bold"))
    _print_sections(console, page.sections, _TASK_SECTIONS)
    console.print(Text("`store show KERNEL` shows one kernel with its code."))


def _print_sections(
    console: Console, sections: Mapping[str, pa.Table], known: Mapping[str, tuple[str, str]]
) -> None:
    """Print a table for each section, and below it the newest text if its rows have texts."""
    from rich.text import Text

    for title, rows in sections.items():
        if not rows.num_rows:
            console.print(Text(f"{title}: {known[title][1]}"))
            continue
        texts = list(map(str, rows["body"].to_pylist())) if "body" in rows.column_names else []
        shown = rows.drop_columns(["body"] if texts else [])
        display.print_table(shown, title=f"{title} ({rows.num_rows})")
        for text in texts[:1]:  # JSON has all of them
            echo.print_foreign(text)
