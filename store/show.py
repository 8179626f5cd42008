"""`store show`: everything that a lake knows of one kernel, on one page."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import display
from store.errors import UnknownName
from store.reader import Lake

if TYPE_CHECKING:
    import pyarrow as pa

_SQL = Path(__file__).parent / "sql" / "show"
# Title of each section, its query, and what stands there when it has no rows.
_SECTIONS = {
    "Origin": ("origins", "no generation names it"),
    "Evaluations": ("evaluations", "not judged yet (evaluators run --kernel ID)"),
    "Speedups": ("speedups", "not measured yet"),
    "Claims": ("claims", "none"),
    "Findings": ("findings", "none"),
    "Lineage": ("lineage", "none"),
    "Datasets": ("datasets", "in none"),
}


@dataclass(frozen=True, kw_only=True)
class Page:
    """One kernel: its row and features, and one table per section."""

    kernel: dict[str, Any]
    sections: dict[str, pa.Table]


def kernel(lake: Lake, prefix: str) -> Page:
    """Collect what is known of the kernel whose id begins with `prefix`.

    Raises UnknownName when no kernel or more than one begins so.
    """
    # Control characters typed by mistake must not reach the terminal through the error.
    wanted = re.sub(r"[^0-9a-f]", "", prefix.lower())
    found = [r["kernel_id"] for r in lake.run(_text("find"), {"prefix": wanted}).rows()]
    if not wanted or wanted != prefix.lower() or not found:
        raise UnknownName(
            f"no kernel id begins with {prefix!a}",
            'Ids are hexadecimal: store query "SELECT kernel_id, source FROM kernels LIMIT 5"',
        )
    if len(found) > 1:
        listed = ", ".join(one[:12] for one in found[:5]) + (" …" if len(found) > 5 else "")
        raise UnknownName(f"{prefix} begins {len(found)} or more kernel ids", f"Such as {listed}")
    arguments = {"kernel_id": found[0]}
    row = lake.run(_text("kernel"), arguments).one()
    assert row is not None
    sections = {
        title: lake.run(_text(query), arguments).arrow() for title, (query, _) in _SECTIONS.items()
    }
    return Page(kernel=row, sections=sections)


def write(page: Page, form: str) -> None:
    """Print a page for a person, or as one JSON object."""
    if form == "json":
        whole = page.kernel | {
            title.lower(): rows.to_pylist() for title, rows in page.sections.items()
        }
        json.dump(whole, sys.stdout, indent=1, default=str)
        sys.stdout.write("\n")
        return
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.text import Text

    console = Console(file=sys.stdout)
    row = page.kernel
    console.print(Text(f"kernel {row['kernel_id']}", style="bold"))
    facts = [row["language"], *(row["techniques"] or []), row["license"] or "no licence stated"]
    console.print(Text(", ".join(str(fact) for fact in facts if fact)))
    for title, rows in page.sections.items():
        if rows.num_rows:
            display.table(rows, title=f"{title} ({rows.num_rows})")
        else:
            console.print(Text(f"{title}: {_SECTIONS[title][1]}"))
    for path, code in [(row["path"], row["code"])] + [
        (file["path"], file["code"]) for file in row["other_files"] or []
    ]:
        console.print(Text(f"\n{path}", style="bold"))
        # Escape sequences in a kernel's text must not drive the reader's terminal.
        inert = "".join(c if c.isprintable() or c in "\n\t" else "�" for c in code)
        language = "cuda" if path.endswith((".cu", ".cuh", ".cpp", ".h")) else "python"
        console.print(Syntax(inert, language, line_numbers=True, background_color="default"))


def _text(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text("utf-8")
