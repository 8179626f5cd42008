"""Prints the page of `store show`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from store.code.languages import find_fence
from store.code.lexer import make_lexer
from store.commandline import display, echo
from store.commandline.display import list_rows
from store.commandline.escape import escape_lines, escape_terminal, quote_name
from store.dossier.pages import Ancestry, Page, read_section
from store.lake.sql_files import read_key_columns

SHOWN_LEVELS = 16
"""Number of levels of the tree of ancestors that is printed; JSON has all levels."""
_EMPTY_KERNEL = {
    "Origin": "no generation has written it",
    "Evaluations": "not judged yet (`evaluators run --kernel ID`)",
    "Speedups": "not measured yet",
    "Datasets": "none contains it",
}
_EMPTY_TASK = {
    "Claimed": "nothing published",
    "Judged": "not judged yet (`evaluators run`)",
    "Measured": "not measured yet",
    "Findings": "none to look at (`evaluators audit`)",
}


def print_page(page: Page | Ancestry, form: str) -> None:
    """Print a page as text and tables, or as one JSON object."""
    if isinstance(page, Ancestry):
        if form == "json":
            whole = {"kernel_id": page.kernel_id, "edges": list_rows(page.edges)}
            echo.print_json(whole)
        else:
            _print_ancestry(page)
    elif form == "json":
        about = page.row
        if page.kind == "run":
            about = about | {"config": json.loads(about["config"])}
        echo.print_json(about | page.list_sections())
    elif page.kind == "task":
        row = page.row
        title = f"task {row['suite']} {row['suite_revision']} {row['name']}"
        _print(f"{title}: {row['title'] or row['task_id'][:12]}", style="bold")
        _print_sections(page, _EMPTY_TASK)
        _print_file("task.py", row["code"])
        _print(echo.name_commands("`store show KERNEL` shows one kernel with its code."))
    elif page.kind == "run":
        _print_run(page)
    else:
        row = page.row
        _print(f"kernel {row['kernel_id']}", style="bold")
        facts = [row["language"], *(row["techniques"] or []), row["license"] or "no license stated"]
        _print(", ".join(str(fact) for fact in facts if fact))
        _print_sections(page, _EMPTY_KERNEL)
        for file in (row, *(row["other_files"] or [])):
            _print_file(file["path"], file["code"])


def _print(line: str, style: str = "", *, soft_wrap: bool = False) -> None:
    from rich.text import Text

    echo.open_console().print(Text(escape_terminal(line), style=style), soft_wrap=soft_wrap)


def _print_file(path: str, code: str) -> None:
    from rich.syntax import Syntax

    console = echo.open_console()
    console.print()
    _print(f"file {quote_name(path)}", style="bold")
    lexer = make_lexer(find_fence(path) or "python")
    lines = escape_lines(code, prefix="")
    code_width = None if console.is_terminal else max(map(len, lines), default=1)
    syntax = Syntax(
        "\n".join(lines), lexer, line_numbers=True, code_width=code_width,
        word_wrap=console.is_terminal, background_color="default",
    )  # fmt: skip
    console.print(syntax, crop=console.is_terminal)


def _print_ancestry(page: Ancestry) -> None:
    """Print the paths back as a tree. Each kernel is expanded once, where it is nearest."""
    from rich.text import Text
    from rich.tree import Tree

    root = Tree(Text(f"kernel {page.kernel_id[:12]}", style="bold"))
    branches = {page.kernel_id: root}
    beyond: set[str] = set()
    for edge in list_rows(page.edges):
        parent, branch = edge["parent_kernel_id"], branches.get(edge["child_kernel_id"])
        if branch is None:
            beyond.add(edge["child_kernel_id"])
            continue
        known = parent in branches
        elsewhere = " (expanded elsewhere)" if known else ""
        # What the parent was, its score as shown, and to whom.
        score = "" if edge["score"] is None else f"shown as {edge['score']:.2f}x"
        facts = [
            score,
            edge["policy"] and f"{'to' if score else 'by'} {edge['policy']}",
            edge["run"],
            "" if edge["step"] is None else f"step {edge['step']}",
            f"{edge['attempts']} attempts" if edge["attempts"] > 1 else "",
            "quarantined" if edge["quarantined"] else "",
        ]
        listed = ", ".join(str(fact) for fact in facts if fact)
        about = f"{edge['relation']} {parent[:12]} {listed}".rstrip()
        line = branch.add(Text(escape_terminal(about + elsewhere)))
        if not known and edge["parent_distance"] < SHOWN_LEVELS:
            branches[parent] = line
    echo.open_console().print(root)
    if page.edges.num_rows == 0:
        _print("no parent, and no exemplar in its prompts")
    if beyond:
        _print(f"{len(beyond)} kernels further back have more ancestors: --format json lists all")


def _print_run(page: Page) -> None:
    row = page.row
    _print(f"{row['kind']} run {row['run_id']}", style="bold")
    facts: dict[str, Any] = {
        "member": row["name"],
        "state": row["state"],
        "error": row["error"],
        "started": row["started_at"],
        "ended": row["ended_at"],
        "seconds": None if row["seconds"] is None else f"{row['seconds']:.3g}",
        "host": row["host"],
        "version": row["version"],
        "snapshot": row["snapshot_id"],
        "source": row["source"],
        "origin": row["origin"],
    }
    for name, fact in facts.items():
        if fact is not None:
            _print(f"{name:<10} {fact}", soft_wrap=True)
    _print_sections(page, {"Ends": "no end is stored"})


def _print_sections(page: Page, empty: Mapping[str, str]) -> None:
    """Print a table for each section, and below it the newest text if its rows have texts."""
    for title, rows in page.sections.items():
        if not rows.num_rows:
            _print(f"{title}: {echo.name_commands(empty.get(title, 'none'))}")
            continue
        texts = list(map(str, rows["body"].to_pylist())) if "body" in rows.column_names else []
        shown = rows.drop_columns(["body"] if texts else [])
        keys = read_key_columns(read_section(page.kind, title))
        display.print_table(shown, title=f"{title} ({rows.num_rows})", keys=keys)
        for text in texts[:1]:  # JSON has all of them
            echo.print_foreign(text)
