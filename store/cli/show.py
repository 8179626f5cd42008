"""`store show`: what a lake knows of one kernel on one page, or of one task and its kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.code.languages import find_fence
from store.commandline import display, echo
from store.commandline.escape import escape_lines, escape_terminal, quote_name
from store.errors import UnknownName
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

# Title of each section, its query, and what stands there when it has no rows.
_SECTIONS = {
    "Origin": ("origins", "no generation names it"),
    "Evaluations": ("evaluations", "not judged yet (evaluators run --kernel ID)"),
    "Speedups": ("speedups", "not measured yet"),
    "Analyses": ("analyses", "none"),
    "Claims": ("claims", "none"),
    "Findings": ("findings", "none"),
    "Lineage": ("lineage", "none"),
    "Datasets": ("datasets", "in none"),
}


_TASK_SECTIONS = {
    "Claimed": ("claims", "nothing published"),
    "Judged": ("evaluations", "not judged yet (evaluators run)"),
    "Measured": ("speedups", "not measured yet"),
    "Findings": ("findings", "none to look at (evaluators audit)"),
}
_LEVELS = 16
"""Levels of a tree of ancestors that are printed; JSON has all."""
_SHORT = re.compile(r"[lL](\d+)-(\d+)")


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    """One task: its label, and one table per section over all kernels for it."""

    task: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Page:
    """One kernel: its row and features, and one table per section."""

    kernel: dict[str, Any]
    sections: dict[str, pa.Table]


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """One kernel and every edge on the ways back to what it was made from."""

    kernel_id: str
    edges: pa.Table
    """child_kernel_id, relation (exemplar or parent), parent_kernel_id, their distances from the
    kernel, score as shown, attempts, policy, run, step, written_at, quarantined (the parent)."""


def ancestry(lake: Lake, prefix: str) -> Ancestry:
    """Collect the exemplars and parents of a kernel, theirs, and so on to the first.

    Raises UnknownName when no kernel or more than one begins with `prefix`.
    """
    kernel_id = _find(lake, prefix)
    edges = lake.run(read_sql(__file__, "show/ancestry"), {"kernel_id": kernel_id}).arrow()
    return Ancestry(kernel_id=kernel_id, edges=edges)


def page(lake: Lake, wanted: str) -> Page | TaskPage:
    """Collect what is known of a task, by its name (level1/9, L1-9), or of a kernel, by its id.

    Raises UnknownName where it is neither, or several.
    """
    short = _SHORT.fullmatch(wanted)
    name = f"level{short[1]}/{short[2]}" if short else wanted
    found = lake.run(read_sql(__file__, "task/find"), {"wanted": name}).rows()
    tasks = {row["task_id"]: row for row in found}
    if not tasks:
        return kernel(lake, wanted)
    if len(tasks) > 1:
        listed = ", ".join(
            f"{r['suite']} {r['suite_revision']}: {i[:12]}" for i, r in tasks.items()
        )
        raise UnknownName(f"{wanted} names {len(tasks)} tasks", f"Give an id: {listed}"[:300])
    [(task_id, row)] = tasks.items()
    sections = {
        title: lake.run(read_sql(__file__, f"task/{query}"), {"task_id": task_id})
        for title, (query, _) in _TASK_SECTIONS.items()
    }
    return TaskPage(task=row, sections={title: rows.arrow() for title, rows in sections.items()})


def kernel(lake: Lake, prefix: str) -> Page:
    """Collect what is known of the kernel whose id begins with `prefix`.

    Raises UnknownName when no kernel or more than one begins so.
    """
    arguments = {"kernel_id": _find(lake, prefix)}
    row = lake.run(read_sql(__file__, "show/kernel"), arguments).one()
    assert row is not None
    sections = {
        title: lake.run(read_sql(__file__, f"show/{query}"), arguments).arrow()
        for title, (query, _) in _SECTIONS.items()
    }
    return Page(kernel=row, sections=sections)


def _find(lake: Lake, prefix: str) -> str:
    """Return the one kernel id that begins so; raises UnknownName."""
    # Control characters typed by mistake must not reach the terminal through the error.
    wanted = re.sub(r"[^0-9a-f]", "", prefix.lower())
    found = [
        r["kernel_id"] for r in lake.run(read_sql(__file__, "show/find"), {"prefix": wanted}).rows()
    ]
    if not wanted or wanted != prefix.lower() or not found:
        raise UnknownName(
            f"no kernel id begins with {prefix!a}",
            'Ids are hexadecimal: store query "SELECT kernel_id, source FROM kernels LIMIT 5"',
        )
    if len(found) > 1:
        listed = ", ".join(one[:12] for one in found[:5]) + (" …" if len(found) > 5 else "")
        raise UnknownName(f"{prefix} begins {len(found)} or more kernel ids", f"Such as {listed}")
    return str(found[0])


def write(page: Page | TaskPage | Ancestry, form: str) -> None:
    """Print a page for a person, or as one JSON object."""
    if isinstance(page, Ancestry):
        if form == "json":
            whole = {"kernel_id": page.kernel_id, "edges": page.edges.to_pylist()}
            echo.print_json(whole)
        else:
            _write_ancestry(page)
    elif form == "json":
        about = page.task if isinstance(page, TaskPage) else page.kernel
        tables = {title.lower(): rows.to_pylist() for title, rows in page.sections.items()}
        echo.print_json(about | tables)
    elif isinstance(page, TaskPage):
        _write_task(page)
    else:
        _write_kernel(page)


def _write_kernel(page: Page) -> None:
    from rich.syntax import Syntax
    from rich.text import Text

    console = echo.open_console()
    row = page.kernel
    console.print(Text(f"kernel {row['kernel_id']}", style="bold"))
    facts = [row["language"], *(row["techniques"] or []), row["license"] or "no licence stated"]
    console.print(Text(escape_terminal(", ".join(str(fact) for fact in facts if fact))))
    _write_sections(console, page.sections, _SECTIONS)
    for path, code in [(row["path"], row["code"])] + [
        (file["path"], file["code"]) for file in row["other_files"] or []
    ]:
        console.print(Text(f"\nfile {quote_name(path)}", style="bold"))
        language = find_fence(path) or "python"
        shown = "\n".join(escape_lines(code, prefix=""))
        console.print(Syntax(shown, language, line_numbers=True, background_color="default"))


def _write_ancestry(page: Ancestry) -> None:
    """Print the ways back as a tree. A kernel is unfolded once, where it is nearest."""
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
        elsewhere = " (unfolded elsewhere)" if known else ""
        line = branch.add(Text(escape_terminal(_edge(edge) + elsewhere)))
        if not known and edge["parent_distance"] < _LEVELS:
            branches[parent] = line
    console.print(root)
    if page.edges.num_rows == 0:
        console.print(Text("no attempt at it was shown another kernel, or went on from one"))
    if beyond:
        console.print(
            Text(f"{len(beyond)} kernels further back have ancestors too: --format json lists all")
        )


def _edge(edge: Mapping[str, Any]) -> str:
    """Return one line about an edge: what the parent was, how it was shown, and to whom."""
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


def _write_task(page: TaskPage) -> None:
    from rich.text import Text

    console = echo.open_console()
    row = page.task
    title = f"task {row['suite']} {row['suite_revision']} {row['name']}"
    about = f"{title}: {row['title'] or row['task_id'][:12]}"
    console.print(Text(escape_terminal(about), style="bold"))
    _write_sections(console, page.sections, _TASK_SECTIONS)
    console.print(Text("One kernel with its code: store show KERNEL"))


def _write_sections(
    console: Console, sections: Mapping[str, pa.Table], known: Mapping[str, tuple[str, str]]
) -> None:
    """Print a table for each section, with the newest text below it where it holds texts."""
    from rich.text import Text

    for title, rows in sections.items():
        if not rows.num_rows:
            console.print(Text(f"{title}: {known[title][1]}"))
            continue
        texts = list(map(str, rows["body"].to_pylist())) if "body" in rows.column_names else []
        shown = rows.drop_columns(["body"] if texts else [])
        display.table(shown, title=f"{title} ({rows.num_rows})")
        for text in texts[:1]:  # all of them stand in the JSON
            echo.print_foreign(text)
