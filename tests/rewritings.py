"""Draws texts that Python reads as the same program, and texts that it reads as another one."""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import tokenize
from collections.abc import Callable, Iterator
from contextlib import suppress

from hypothesis import assume
from hypothesis import strategies as st

IDLE = [
    '"""A \\""" scan."""', "r'''A \\d'''", 'U"A"', 'Rb"A"', 'f"{1}"', '"A " "scan"', "'A'  # one",
    '("A")', '("A "  # two\n "scan"\n)', "'A' \\\n 'scan'", '"A\\\nscan"', "'it\\'s # « »'",
    '"""\nx = 1\n# y\n"""', "'''\"\"\"'''", '""', "pass", "...", '# "A', '"A"; """B"""',
]  # fmt: skip
"""Statements without an effect, and comments."""
BLANKS = [" ", "\t", "\f", " \\\n", "\n", "  # it's\n", '\n# """\n']
"""What can be between two tokens; newlines only inside brackets."""


class _Essence(ast.NodeTransformer):
    """Removes statements without an effect."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if _is_idle(node) else self.generic_visit(node)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(node.value)


def _is_idle(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    return isinstance(value, ast.JoinedStr) or (
        isinstance(value, ast.Constant) and isinstance(value.value, str | bytes | type(...))
    )


def read_program(text: str) -> str | None:
    """Return what Python reads in a text, without statements that have no effect."""
    try:
        return ast.dump(_Essence().visit(ast.parse(text)))
    except (SyntaxError, ValueError):
        return None


def list_tokens(text: str) -> list[tuple[int, int, str]]:
    """Return kind, start and text of each token, up to one that tokenize rejects.

    Python's parser accepts more texts, such as one with a continued blank line.
    """
    starts = _list_line_starts(text)
    found: list[tuple[int, int, str]] = []
    with suppress(SyntaxError, tokenize.TokenError):
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.string:
                start = starts[token.start[0] - 1] + token.start[1]
                found.append((token.type, start, token.string))
    return found


def _list_line_starts(text: str) -> list[int]:
    lines = io.StringIO(text).readlines()  # splitlines() also ends lines at form feeds
    return [0, *itertools.accumulate(map(len, lines))]


def list_nodes(text: str) -> Iterator[tuple[ast.AST, int, int]]:
    """Return the statements and expressions of a text with their start and end.

    Statements without an effect are left out.
    """
    lines, starts = io.StringIO(text).readlines(), _list_line_starts(text)
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        waiting += [child for child in ast.iter_child_nodes(node) if not _is_idle(child)]
        if isinstance(node, ast.stmt | ast.expr):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            first, last = lines[node.lineno - 1], lines[node.end_lineno - 1]
            start = starts[node.lineno - 1] + len(first.encode()[: node.col_offset].decode())
            end = starts[node.end_lineno - 1] + len(last.encode()[: node.end_col_offset].decode())
            yield node, start, end


def insert(text: str, place: int, piece: str, end: int | None = None) -> str:
    return text[:place] + piece + text[place if end is None else end :]


def space_tokens(text: str, draw: st.DrawFn) -> str:
    _, start, _ = draw(st.sampled_from(list_tokens(text)))
    return insert(text, start, draw(st.sampled_from(BLANKS)))


def add_idle(text: str, draw: st.DrawFn) -> str:
    """Add a statement without an effect, or a comment, before a statement."""
    start, _ = draw(st.sampled_from(_list_statements(text)))
    idle = draw(st.sampled_from(IDLE))
    line = text[text.rfind("\n", 0, start) + 1 : start]
    # After `def f():` on the same line, and sometimes elsewhere.
    joined = bool(line.strip()) or draw(st.booleans())
    return insert(text, start, f"{idle}; " if joined else f"{idle}\n{line}")


def end_statement(text: str, draw: st.DrawFn) -> str:
    _, end = draw(st.sampled_from(_list_statements(text)))
    return insert(text, end, draw(st.sampled_from([";", "; pass", '; "A"', " ; ...;"])))


def _list_statements(text: str) -> list[tuple[int, int]]:
    return [(start, end) for node, start, end in list_nodes(text) if isinstance(node, ast.stmt)]


def quote_otherwise(text: str, draw: st.DrawFn) -> str:
    """Write a string with other quotes, another prefix, or in two parts."""
    nodes = [
        (start, end, node.value)
        for node, start, end in list_nodes(text)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    if not nodes:
        return text
    start, end, value = draw(st.sampled_from(nodes))
    half = draw(st.integers(0, len(value)))
    forms = [f"'{value}'", f'"{value}"', f'u"{value}"', f'r"""{value}"""']
    forms.append(f"'{value[:half]}' \"{value[half:]}\"")
    return insert(text, start, draw(st.sampled_from(forms)), end)


def add_comma(text: str, draw: st.DrawFn) -> str:
    brackets = [start for _, start, token in list_tokens(text) if token in (")", "]", "}")]
    if not brackets:
        return text
    return insert(text, draw(st.sampled_from(brackets)), ",")


def add_parentheses(text: str, draw: st.DrawFn) -> str:
    nodes = [found for found in list_nodes(text) if isinstance(found[0], ast.expr)]
    _, start, end = draw(st.sampled_from(nodes))
    return insert(text, start, f"({text[start:end]})", end)


def write_number(text: str, draw: st.DrawFn) -> str:
    found = [(start, token) for kind, start, token in list_tokens(text) if kind == tokenize.NUMBER]
    if not found:
        return text
    start, token = draw(st.sampled_from(found))
    other = token.removeprefix("0") if token.startswith("0.") else token.removesuffix("0")
    return insert(text, start, other, start + len(token))


REWRITINGS: list[Callable[[str, st.DrawFn], str]] = [
    space_tokens, add_idle, end_statement, quote_otherwise, add_comma, add_parentheses,
    write_number,
]  # fmt: skip


@st.composite
def rewrite_text(draw: st.DrawFn, text: str) -> str:
    """Draw a text that Python reads as the same program."""
    program = read_program(text)
    for rewrite in draw(st.lists(st.sampled_from(REWRITINGS), min_size=1, max_size=12)):
        other = rewrite(text, draw)
        # Not every edit fits every place.
        text = other if read_program(other) == program else text
    return draw(st.sampled_from(["", "\ufeff"])) + text


@st.composite
def change_program(draw: st.DrawFn, text: str) -> str:
    """Draw a text with another name, number or string."""
    edits: list[str] = []
    for kind, start, token in list_tokens(text):
        end = start + len(token)
        if kind == tokenize.NAME and not keyword.iskeyword(token):
            edits.append(insert(text, end, "_2"))
        elif kind == tokenize.NUMBER:
            edits.append(insert(text, start, "7"))
        elif kind == tokenize.STRING:
            edits.append(insert(text, start + len(token) // 2, "z"))
    other = draw(st.sampled_from(edits))
    # Not in a statement without an effect.
    assume(read_program(other) not in (None, read_program(text)))
    return other
