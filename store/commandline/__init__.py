"""What the commands of all rooms share: members, options, output."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.commandline.escape import escape_lines, escape_terminal, quote_name
    from store.commandline.members import Common, Format, Member
    from store.commandline.progress import Progress

__all__ = [
    "Common",
    "Format",
    "Member",
    "Progress",
    "escape_lines",
    "escape_terminal",
    "quote_name",
]

_HOMES = {
    "Common": "store.commandline.members",
    "Format": "store.commandline.members",
    "Member": "store.commandline.members",
    "Progress": "store.commandline.progress",
    "escape_lines": "store.commandline.escape",
    "escape_terminal": "store.commandline.escape",
    "quote_name": "store.commandline.escape",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    import importlib

    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(name)
