"""Reads Python text: calls, assignments, strings, and names with import aliases resolved."""

from __future__ import annotations

import ast
import string
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

MAX_LENGTH = 1_000_000
"""Longer text is not parsed: no kernel is that long, and its tree would take gigabytes."""


def parse_python(code: str) -> ast.Module | None:
    """Return the tree of Python text, or None if Python's parser rejects it.

    The parser also rejects null bytes, lone surrogates, and nesting deeper than its stack. A file
    may begin with a byte-order mark, which Python skips when it imports the file.
    """
    if len(code) > MAX_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            # Suppress warnings about invalid escapes such as "\d" in the text.
            warnings.simplefilter("ignore")
            return ast.parse(code.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def split_names(names: str, *prefixes: str) -> frozenset[str]:
    """Return the words of a text, each with every prefix.

    >>> sorted(split_names("zeros ones", "torch."))
    ['torch.ones', 'torch.zeros']
    """
    return frozenset(f"{prefix}{name}" for prefix in prefixes or ("",) for name in names.split())


@dataclass(kw_only=True)
class SyntaxParts:
    """The nodes of a tree that matter, by kind."""

    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    targets: list[tuple[ast.expr, ast.expr | None]] = field(default_factory=list)
    keyed: list[ast.Subscript | ast.Compare] = field(default_factory=list)
    products: list[ast.BinOp] = field(default_factory=list)
    reads_variance: bool = False
    """Whether an attribute `running_var` is named."""
    strings: list[str] = field(default_factory=list)
    """Strings that take part in the program; docstrings and bare strings do not."""
    prose: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges of docstrings and bare strings in the UTF-8 text."""


class Names:
    """Dotted names with the module's import aliases undone."""

    def __init__(self, imports: Iterable[ast.Import | ast.ImportFrom]) -> None:
        self.alias: dict[str, str] = {}
        """Full name of each name that an import binds."""
        for node in imports:
            if isinstance(node, ast.Import):
                for name in node.names:
                    # `import torch.nn` binds `torch`.
                    if name.asname:
                        self.alias[name.asname] = name.name
            elif node.module and not node.level:
                for name in node.names:
                    self.alias[name.asname or name.name] = f"{node.module}.{name.name}"

    def resolve(self, node: ast.expr) -> str:
        """Return the full dotted name, "?.attr" on a computed value, or ""."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self.alias.get(node.id, node.id))
        elif parts:
            parts.append("?")
        return ".".join(reversed(parts))


_CHILDREN = {
    kind: tuple(
        name
        for name in kind._fields
        if name not in {"ctx", "op", "ops", "id", "attr", "arg", "kind", "type_comment"}
    )
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def collect_syntax(tree: ast.Module, code: str) -> SyntaxParts:
    """Walk the tree once with an explicit stack, because ast.walk takes three times as long."""
    found = SyntaxParts()
    stack: list[ast.AST] = [tree]
    starts: list[int] | None = None
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is ast.Name:
            continue
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                found.strings.append(node.value)
            continue
        if isinstance(node, ast.Call):
            found.calls.append(node)
            formatted = _format_call(node)
            if formatted is not None:
                found.strings.append(formatted)
                stack += node.args
                continue
        elif isinstance(node, ast.Expr):
            text = node.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                starts = starts or _list_line_starts(code)
                end = starts[(text.end_lineno or text.lineno) - 1] + (text.end_col_offset or 0)
                found.prose.append((starts[text.lineno - 1] + text.col_offset, end))
                continue
        elif isinstance(node, ast.JoinedStr | ast.BinOp):
            joined = _fold(node)
            if joined is not None:
                found.strings.append(joined)
                continue
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                found.products.append(node)
        elif isinstance(node, ast.Attribute):
            found.reads_variance |= node.attr == "running_var"
        elif isinstance(node, ast.Assign):
            found.targets += [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            found.targets.append((node.target, node.value))
        elif isinstance(node, ast.Subscript | ast.Compare):
            found.keyed.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append(node)
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
            continue
        for name in _CHILDREN[kind]:
            value = getattr(node, name)
            if isinstance(value, list):
                stack += [item for item in value if isinstance(item, ast.AST)]  # pyright: ignore
            elif isinstance(value, ast.AST):
                stack.append(value)
    return found


def _list_line_starts(code: str) -> list[int]:
    """Return the byte at which each line of the UTF-8 text starts, as Python counts lines."""
    data = code.encode()
    starts, place = [0], 0
    for line in data.splitlines(keepends=True):  # bytes split at \n, \r and \r\n only
        place += len(line)
        starts.append(place)
    return starts


def _fold(node: ast.expr) -> str | None:
    """Return the text of a string expression made of literals; computed parts become `0`."""
    parts: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        right = _fold(node.right)
        if right is None:
            return None
        parts.append(right)
        node = node.left
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts.append(node.value)
    elif isinstance(node, ast.JoinedStr):
        parts.append(
            "".join(
                value.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
                else "0"
                for value in node.values
            )
        )
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _fold(node.left)
    else:
        return None
    return "".join(reversed(parts))


def _format_call(call: ast.Call) -> str | None:
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "format"):
        return None
    template = _fold(call.func.value)
    if template is None:
        return None
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError:
        return template
    return "".join(text + ("0" if name is not None else "") for text, name, _, _ in pieces)
