"""Show the kernels that one kernel was made from."""

from __future__ import annotations

from store.commandline.display import list_rows
from store.dossier.pages import find_ancestry
from store.mcp.lake_tools import LakeTools, Reply

READS_ONLY = True


async def run(lake_tools: LakeTools, kernel: str, at: str | None = None) -> Reply:
    """Show what a kernel was made from: its parents, exemplars in its prompts, and so on back.

    Each edge names the child, the parent, the relation (parent or exemplar), the author and when.

    Args:
        kernel: Id of the kernel, or its first characters.
        at: Read the lake at this tag, snapshot number or ISO time (default: newest).
    """
    snapshot = await lake_tools.resolve(at)
    ancestry = await lake_tools.read(snapshot, lambda lake: find_ancestry(lake, kernel))
    data = {"kernel_id": ancestry.kernel_id, "edges": list_rows(ancestry.edges)}
    return Reply(snapshot=snapshot, data=data)
