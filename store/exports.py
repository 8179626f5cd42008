"""The public names of a room, each imported when it is first used."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable
from pathlib import Path


@functools.cache
def load_lazily(room: str, file: str) -> Callable[[str], object]:
    """Return the `__getattr__` of a room: it imports what its file imports for type checkers.

    Those imports, below `if TYPE_CHECKING:`, are the list of public names.
    """
    homes = {
        name.name: str(node.module)
        for block in ast.parse(Path(file).read_text("utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        # A name is what its module defines, or a module of its package.
        return getattr(home, name, None) or importlib.import_module(f"{homes[name]}.{name}")

    return load
