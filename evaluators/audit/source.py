"""A kernel's files, parsed once for all detectors."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from evaluators.audit.hits import MAIN, QUOTE_LENGTH, Hit, quote_line
from evaluators.audit.native_source import Native, parse_native
from evaluators.audit.python_source import Module
from store import languages, python_syntax


@dataclass
class Source:
    """All files of a kernel."""

    modules: list[Module]
    native: list[Native]
    unreadable: list[Hit]
    """Files that could not be parsed."""

    @property
    def calls(self) -> Iterator[tuple[Module, ast.Call, str]]:
        """Every call of every Python file with its full name."""
        for module in self.modules:
            for call, name in module.calls:
                yield module, call, name

    def find_calls(
        self, names: frozenset[str], confidence: float, hot: float | None = None
    ) -> Iterator[Hit]:
        """Yield the calls of these functions; `hot` is the confidence inside of `forward`.

        A function that compiles or loads code may be reached by forward, and is not a part of it.
        """
        for module, call, name in self.calls:
            if name in names:
                warm = hot is not None and module.is_hot(call) and not module.builds_code(call)
                yield module.hit(call, cast("float", hot) if warm else confidence)


def parse_source(code: str, other_files: Sequence[Mapping[str, str]] | None) -> Source:
    """Parse a kernel's files; does not raise for any text.

    Args:
        code: Text of the file with the entry point.
        other_files: Mappings of path and code.
    """
    source = Source([], [], [])
    _add_python(source, MAIN, code)
    for file in other_files or ():
        path, text = file["path"], file["code"]
        if languages.is_python(path):
            _add_python(source, path, text)
        elif languages.is_native(path):
            source.native += parse_native(path, text, 1, text.splitlines())
    definitions: dict[str, list[tuple[int, float]]] = {}
    for native in source.native:  # one text includes another, or declares what it defines
        for name, arities in native.definitions.items():
            definitions.setdefault(name, []).extend(arities)
    for native in source.native:
        native.definitions = definitions
    return source


def _add_python(source: Source, path: str, code: str) -> None:
    tree = python_syntax.parse_python(code)
    lines = code.splitlines() if len(code) <= python_syntax.MAX_LENGTH else [code[:QUOTE_LENGTH]]
    if tree is None:
        source.unreadable.append(Hit(path, 1, quote_line(lines, 1), 0.5))
        return
    module = Module(path, tree, lines)
    try:
        module.index()
    except RecursionError:
        module.complete = False
    if not module.complete:
        source.unreadable.append(Hit(path, 1, quote_line(lines, 1), 0.9))
        return
    source.modules.append(module)
    for node in module.all(ast.Constant, ast.JoinedStr):
        if node in module.prose or isinstance(module.parents.get(node), ast.JoinedStr):
            continue
        if isinstance(node, ast.JoinedStr):
            pieces = [part.value if isinstance(part, ast.Constant) else "0" for part in node.values]
            text = "".join(map(str, pieces))
        elif isinstance(node.value, str):
            text = node.value
        else:
            continue
        source.native += parse_native(path, text, node.lineno, lines, last=node.end_lineno)
