"""Axes that follow from other axes: arithmetic of untrusted files, checked and not evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set

from store.errors import ImportFailed

MAX_CHARACTERS = 2_000
"""Longest expression, also after the axes that it names are replaced by theirs."""
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub),
)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def expand(expressions: Mapping[str, str], known: Set[str], where: str) -> dict[str, str]:
    """Return each axis as an expression over the axes in `known`.

    >>> expand({"pairs": "tokens // 2", "tokens": "batch * 8"}, {"batch"}, "definition.json")
    {'pairs': '(batch * 8) // 2', 'tokens': 'batch * 8'}

    Raises:
        ImportFailed: an expression is not arithmetic, names an unknown axis or itself, or is longer
            than MAX_CHARACTERS.
    """
    parsed = {name: _normalize(text, f"{where}, axis {name}") for name, text in expressions.items()}

    def replace(name: str, above: tuple[str, ...]) -> str:
        place = f"{where}, axis {name}"
        if name in above:
            raise ImportFailed(f"{place} follows from itself")

        def one(match: re.Match[str]) -> str:
            inner = match[0]
            if inner in known:
                return inner
            if inner not in parsed:
                raise ImportFailed(f"{place}: there is no axis {inner!a:.40}")
            return f"({replace(inner, (*above, name))})"

        text = _NAME.sub(one, parsed[name])
        if len(text) > MAX_CHARACTERS:
            raise ImportFailed(f"{place}: the expression has more than {MAX_CHARACTERS} characters")
        return text

    return {name: replace(name, ()) for name in parsed}


def _normalize(text: str, where: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise ImportFailed(f"{where}: the expression has more than {MAX_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ImportFailed(f"{where}: {text!a:.60} is no expression") from error
    for node in ast.walk(tree):
        number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        if not isinstance(node, _ALLOWED) or not number:
            raise ImportFailed(f"{where}: {text!a:.60} is no arithmetic of axes")
    return ast.unparse(tree)
