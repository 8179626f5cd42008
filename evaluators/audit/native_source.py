"""C++ and CUDA text in a kernel, parsed by tree-sitter."""

from __future__ import annotations

import functools
import re
from collections import Counter
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
(identifier) @word
(declaration declarator: (function_declarator declarator: (identifier) @declared))
(preproc_function_def name: (identifier) @macro)
(preproc_def name: (identifier) @alias)
(preproc_arg) @expansion
(parameter_declaration declarator: (_) @local)
(init_declarator declarator: (_) @local)
(declaration declarator: (identifier) @local)
(field_declaration declarator: (field_identifier) @local)
(for_range_loop declarator: (identifier) @local)
"""
_SCOPES = ("function_definition", "lambda_expression", "struct_specifier", "class_specifier")
_NOBODYS = ("", "std")
"""Scopes in which a name is that of a library: `::kill`, `std::system`."""


class Called(NamedTuple):
    """One call in C++ text."""

    name: str
    line: int
    arguments: tuple[str, ...]
    launch: tuple[str, ...] | None
    """Arguments inside <<<...>>>, if the call is a launch."""
    method: bool
    """Whether the function is called on an object."""
    scope: str | None
    """What is before the last `::` of the name; None if it has none."""
    is_local: bool
    """Whether the name is that of a parameter, a variable or a macro there."""


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
    words: Counter[str]
    """How often each identifier stands in the text, other than in declarations of functions."""
    definitions: dict[str, list[tuple[int, float]]]
    """Functions and methods with a body in any text of the kernel: fewest and most arguments."""

    def is_own(self, call: Called) -> bool:
        """Whether a call is one of the kernel's own functions, methods, lambdas or macros."""
        if call.method or call.is_local:
            return True
        given = len(call.arguments)
        known = self.definitions.get(call.name, [])
        return call.scope not in _NOBODYS and any(low <= given <= high for low, high in known)

    def hit(self, line: int, confidence: float) -> Hit:
        """Return a hit at a line of this text's file."""
        return Hit(self.path, line, quote_line(self.lines, line), confidence)

    def hits(self, names: frozenset[str], confidence: float) -> Iterator[Hit]:
        """Yield the calls of functions of these names that are not the kernel's own."""
        for call in self.calls:
            if call.name in names and not self.is_own(call):
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
    for node in sorted(found.get("type", []), key=lambda node: node.start_byte):
        types.setdefault(_text(node), line(node))
    macros = {
        name
        for node in found.get("macro", [])
        if (name := _text(node))
        not in _text(node.parent and node.parent.child_by_field_name("value"))
    }
    aliases: dict[str, str] = {}
    for node in found.get("alias", []):
        value = node.parent and node.parent.child_by_field_name("value")
        aliases[_text(node)] = _text(value).strip()
    locals_: dict[str, list[tuple[int, int]]] = {}
    for node in found.get("local", []):
        locals_.setdefault(_text(node).lstrip("&* "), []).append(_find_extent(node))

    def read_call(node: tree_sitter.Node) -> Called:
        call = _read_call(node, line(node))
        scope, _, name = aliases.get(call.name, call.name).rpartition("::")
        if call.name in aliases:
            call = call._replace(name=name, scope=scope if "::" in aliases[call.name] else None)
        extents = locals_.get(call.name, []) if call.scope is None else []
        is_local = any(begin <= node.start_byte < end for begin, end in extents)
        return call._replace(is_local=is_local or (call.scope is None and call.name in macros))

    calls = [read_call(node) for node in found.get("call", [])]
    calls.sort(key=lambda call: call.line)
    definitions: dict[str, list[tuple[int, float]]] = {}
    for node in found["function"]:
        name, arity = _read_definition(node)
        definitions.setdefault(name, []).append(arity)
    words = Counter(map(_text, found.get("word", [])))
    for node in found.get("expansion", []):
        words.update(re.findall(r"\w+", _text(node)))
    words.subtract(map(_text, found.get("declared", [])))
    return [Native(path, calls, functions, device, types, lines, words, definitions)]


def _find_extent(node: tree_sitter.Node) -> tuple[int, int]:
    """Return the bytes of the function, lambda or class around a variable, or of the whole text."""
    while node.parent is not None:
        node = node.parent
        if node.type in _SCOPES:
            break
    return node.start_byte, node.end_byte


def _read_definition(function: tree_sitter.Node) -> tuple[str, tuple[int, float]]:
    """Return the name of a function or method with its fewest and most arguments."""
    node = function.child_by_field_name("declarator")
    while node is not None and node.type != "function_declarator":
        node = node.child_by_field_name("declarator") or next(iter(node.named_children), None)
    if node is None:
        return "", (0, 0)
    name = node.child_by_field_name("declarator")
    while name is not None and name.type in {"qualified_identifier", "template_function"}:
        name = name.child_by_field_name("name")
    kinds = [part.type for part in _get_parts(node.child_by_field_name("parameters"))]
    fewest = sum(kind == "parameter_declaration" for kind in kinds)
    is_variadic = any("variadic" in kind or kind == "..." for kind in kinds)
    most = fewest + sum(kind == "optional_parameter_declaration" for kind in kinds)
    return _text(name), (fewest, float("inf") if is_variadic else most)


def _get_parts(node: tree_sitter.Node | None) -> Sequence[tree_sitter.Node]:
    """Return the children of a node that are no comments."""
    parts = [] if node is None else node.children
    return [part for part in parts if part.type != "comment"]


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
    scopes: list[str] = []
    while function is not None and function.type in {
        "qualified_identifier", "template_function", "field_expression", "template_method"
    }:  # fmt: skip
        if function.type == "qualified_identifier":
            scopes.append(_text(function.child_by_field_name("scope")))
        function = function.child_by_field_name("name") or function.child_by_field_name("field")
    arguments = node.child_by_field_name("arguments")
    given = (
        tuple(_text(part)[:QUOTE_LENGTH] for part in _get_parts(arguments) if part.is_named)
        if arguments
        else ()
    )
    syntax = next((child for child in node.children if child.type == "kernel_call_syntax"), None)
    launch = None if syntax is None else tuple(_text(part) for part in syntax.named_children)
    scope = "::".join(scopes) if scopes else None
    return Called(_text(function), line, given, launch, method, scope, is_local=False)


def _text(node: tree_sitter.Node | None) -> str:
    return "" if node is None or node.text is None else node.text.decode(errors="replace")


@functools.cache
def _language() -> tuple[tree_sitter.Parser, tree_sitter.Query]:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    return tree_sitter.Parser(language), tree_sitter.Query(language, _QUERY)
