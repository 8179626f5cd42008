"""C++ and CUDA text in a kernel, parsed by tree-sitter."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from evaluators.audit.hits import QUOTE_LENGTH, Hit, quote_line
from store.code.cuda_facts import MAX_BYTES

if TYPE_CHECKING:
    import tree_sitter

# Text in a string that is not C++ also yields a tree, but one that is mostly errors.
_MOST_ERROR_SHARE = 0.5
_QUERY = """
(ERROR) @error
(function_definition) @function
(call_expression) @call
(type_identifier) @type
"""


class Called(NamedTuple):
    """One call in C++ text."""

    name: str
    line: int
    arguments: tuple[str, ...]
    launch: tuple[str, ...] | None
    """Arguments inside <<<...>>>, if the call is a launch."""
    method: bool
    """Whether the function is called on an object."""


@dataclass
class Native:
    """One C++ or CUDA text, in a file of its own or in a string of a Python file."""

    path: str
    calls: list[Called]
    functions: dict[str, int]
    """Functions with a body, and their first lines."""
    global_functions: dict[str, int]
    """The `__global__` functions among them."""
    types: dict[str, int]
    """Names of types, and the lines of their first use."""
    lines: Sequence[str]

    def hit(self, line: int, confidence: float) -> Hit:
        """Return a hit at a line of this text's file."""
        return Hit(self.path, line, quote_line(self.lines, line), confidence)

    def hits(self, names: frozenset[str], confidence: float) -> Iterator[Hit]:
        """Yield the calls of functions of these names; methods of objects are others."""
        for call in self.calls:
            if call.name in names and not call.method:
                yield self.hit(call.line, confidence)


def parse_native(
    path: str, text: str, first: int, lines: Sequence[str], last: int | None = None
) -> list[Native]:
    """Return the native code in a text: one, or none where the text is not C++.

    Args:
        path: File that holds the text.
        text: The text.
        first: Line of the file at which the text begins.
        lines: Lines of the file.
        last: Last line of the text; None for a whole file.
    """
    import tree_sitter

    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES or b"{" not in data or b"(" not in data:
        return []
    parser, query = _language()
    tree = parser.parse(data)
    found = tree_sitter.QueryCursor(query).captures(tree.root_node)
    wrong, reached = 0, 0
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("error", [])):
        wrong += max(0, end - max(start, reached))
        reached = max(reached, end)
    if not found.get("function") or wrong > _MOST_ERROR_SHARE * len(data.strip()):
        return []

    def line(node: tree_sitter.Node) -> int:
        return min(first + node.start_point.row, last or len(lines) or 1)

    functions = {_name_of(node): line(node) for node in found["function"]}
    device = {
        _name_of(node): line(node)
        for node in found["function"]
        if any(child.type == "__global__" for child in node.children)
    }
    types: dict[str, int] = {}
    for node in found.get("type", []):
        types.setdefault(_text(node), line(node))
    calls = [_read_call(node, line(node)) for node in found.get("call", [])]
    calls.sort(key=lambda call: call.line)
    return [Native(path, calls, functions, device, types, lines)]


def _name_of(function: tree_sitter.Node) -> str:
    node = function.child_by_field_name("declarator")
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator") or next(
            (child for child in node.named_children if child.type == "identifier"), None
        )
    return _text(node)


def _read_call(node: tree_sitter.Node, line: int) -> Called:
    function = node.child_by_field_name("function")
    method = function is not None and function.type == "field_expression"
    while function is not None and function.type in {
        "qualified_identifier", "template_function", "field_expression", "template_method"
    }:  # fmt: skip
        function = function.child_by_field_name("name") or function.child_by_field_name("field")
    arguments = node.child_by_field_name("arguments")
    given = (
        tuple(_text(part)[:QUOTE_LENGTH] for part in arguments.named_children) if arguments else ()
    )
    syntax = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
    launch = None if syntax is None else tuple(_text(part) for part in syntax.named_children)
    return Called(_text(function), line, given, launch, method)


def _text(node: tree_sitter.Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


@functools.cache
def _language() -> tuple[tree_sitter.Parser, tree_sitter.Query]:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    return tree_sitter.Parser(language), tree_sitter.Query(language, _QUERY)
