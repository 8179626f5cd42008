"""The public names of a room, each imported when it is first used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable


@functools.cache
def load_lazily(room: str, file: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a room: it imports what its file imports for type checkers.

    Those imports, below `if TYPE_CHECKING:`, are the list of public names. They are read when one
    is used: until a command can answer Ctrl-C, it imports no more than it must.
    """

    @functools.cache
    def find_homes() -> dict[str, str]:
        import ast
        from pathlib import Path

        return {
            name.name: str(node.module)
            for block in ast.parse(Path(file).read_text("utf-8")).body
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }

    def load(name: str) -> object:
        home = find_homes().get(name)
        if home is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        # A name is what its module defines, or a module of its package.
        found = None if home == room else getattr(importlib.import_module(home), name, None)
        return found or importlib.import_module(f"{home}.{name}")

    return load
