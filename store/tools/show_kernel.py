"""Show one kernel: its code, verdicts, speedups, findings and lineage."""

from __future__ import annotations

from typing import Any

from store.commandline.display import list_rows
from store.dossier.pages import read_kernel_page
from store.lake.reader import Lake
from store.mcp.lake_tools import LakeTools, Reply, slice_code

READS_ONLY = True


async def run(lake_tools: LakeTools, kernel: str, at: str | None = None, offset: int = 0) -> Reply:
    """Show a kernel: code, authors, verdicts, measured speedups, published claims, findings.

    Args:
        kernel: Id of the kernel, or its first characters.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
        offset: Character of the code to start at, if the code is long.
    """
    snapshot = await lake_tools.resolve(at)

    def read(lake: Lake) -> tuple[dict[str, Any], dict[str, Any]]:
        page = read_kernel_page(lake, kernel)
        return page.row, {name.lower(): list_rows(t) for name, t in page.sections.items()}

    row, sections = await lake_tools.read(snapshot, read)
    part, notes = slice_code(row.pop("code"), offset)
    return Reply(
        snapshot=snapshot, data=row | {"code": part} | sections, truncated=notes, whole=("code",)
    )
