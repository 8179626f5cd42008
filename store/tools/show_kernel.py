"""Show one kernel: its code, verdicts, speedups, findings and lineage."""

from __future__ import annotations

from store.dossier.pages import read_kernel_page
from store.mcp.lake_tools import LakeTools, Reply, show_code

READS_ONLY = True


async def run(lake_tools: LakeTools, kernel: str, at: str | None = None, offset: int = 0) -> Reply:
    """Show a kernel: code, authors, verdicts, measured speedups, published claims, findings.

    Args:
        kernel: Id of the kernel, or its first characters.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
        offset: Character of the code to start at, if the code is long.
    """
    snapshot = await lake_tools.resolve(at)

    page = await lake_tools.read(snapshot, lambda lake: read_kernel_page(lake, kernel))
    return show_code(snapshot, page.row | page.list_sections(), offset)
