"""A kernel's files, parsed once for all detectors; what detectors find is a place in them."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from store import languages, python_syntax
from store.code.constant_answers import read_self_attribute as read_self_attribute
from store.code.cuda_facts import MAX_BYTES, capture_nodes
from store.code.entry_points import CONVENTIONS
from store.code.python_facts import split_names as split_names

if TYPE_CHECKING:
    import tree_sitter

MAIN = "kernel.py"
"""Path of the file with the entry point."""
QUOTE_LENGTH = 160
"""Most characters of a quote."""


class Hit(NamedTuple):
    """One place that a detector points at."""

    path: str
    line: int
    quote: str
    confidence: float


def quote_line(lines: Sequence[str], line: int) -> str:
    """Return a line of text, cut, as valid UTF-8 without NUL."""
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return text[:QUOTE_LENGTH].encode(errors="replace").decode().replace("\0", "")


# --- Python ---

MAX_NODES = 400_000
"""A tree of more nodes is not searched: no kernel is that large."""
_DEPTH = 40
_BUILDS = (
    split_names("load load_inline", "torch.utils.cpp_extension.")
    | split_names("Popen run call check_call check_output", "subprocess.")
    | split_names("CDLL PyDLL cdll.LoadLibrary", "ctypes.")
    | split_names("load_library", "torch.ops.")
    | split_names("nvrtcCompileProgram", "cuda.bindings.nvrtc.", "cuda.nvrtc.")
    | {"importlib.util.spec_from_file_location"}
)
MODEL = "ModelNew"
_ABOUT = split_names(
    "shape device dtype is_cuda requires_grad ndim layout size dim numel is_contiguous stride "
    "get_device is_floating_point new_zeros new_ones new_full new_empty nelement element_size"
)
_EMPTY = split_names("empty empty_like empty_strided", "torch.") | {
    "numpy.empty",
    "numpy.empty_like",
}
_VIEWS = split_names(
    "view reshape expand expand_as detach contiguous to clone squeeze unsqueeze t transpose "
    "permute flatten unflatten view_as reshape_as cuda cpu type type_as float double alias "
    "requires_grad_"
)
_PATCHED_ROOTS = split_names(
    "torch builtins numpy time timeit sys os random math inspect gc triton subprocess functools "
    "json pickle"
)
_SETTINGS = (
    "torch.backends.",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch.utils.cpp_extension.CUDA_HOME.",
)
_QUESTIONS = split_names("data_ptr get detach clone item_size")
_PLAIN = split_names("len id hash tuple int isinstance getattr type bool range min max")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Node = TypeVar("Node", bound=ast.AST)


@dataclass
class Module:
    """One Python file: its nodes by kind, its names without aliases, what `forward` reaches."""

    path: str
    tree: ast.Module
    lines: Sequence[str]
    nodes: dict[type[ast.AST], list[ast.AST]] = field(default_factory=dict)
    owners: dict[ast.AST, Function | None] = field(default_factory=dict)
    """The innermost function with a name around a node."""
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    prose: set[ast.AST] = field(default_factory=set)
    """Docstrings and bare strings."""
    complete: bool = True
    _alias: dict[str, str] = field(default_factory=dict)

    def all(self, *kinds: type[Node]) -> list[Node]:
        """Return the nodes of these kinds in the order of the text."""
        if len(kinds) == 1:
            return cast("list[Node]", self.nodes.get(kinds[0], []))
        found = [cast("Node", node) for kind in kinds for node in self.nodes.get(kind, [])]
        return sorted(found, key=_place)

    @functools.cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """Every call with the full name of what is called."""
        return [(call, self.name(call.func)) for call in self.all(ast.Call)]

    @functools.cached_property
    def assigned(self) -> list[tuple[ast.expr, ast.expr | None, ast.AST]]:
        """Every single target that something is assigned to, with the value and the statement."""
        found: list[tuple[ast.expr, ast.expr | None, ast.AST]] = []
        for node in self.all(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                values: list[ast.expr | None] = [node.value] * len(parts)
                if (
                    len(parts) > 1
                    and isinstance(node.value, ast.Tuple)
                    and len(node.value.elts) == len(parts)
                ):
                    values = list(node.value.elts)
                found += [(part, value, node) for part, value in zip(parts, values, strict=True)]
        return found

    @functools.cached_property
    def functions(self) -> dict[str, list[Function]]:
        """Functions and methods by name."""
        found: dict[str, list[Function]] = {}
        for node in self.all(ast.FunctionDef, ast.AsyncFunctionDef):
            found.setdefault(node.name, []).append(node)
        return found

    @functools.cached_property
    def entries(self) -> list[Function]:
        """`forward` and `__call__` of the classes, what is put in their place, and free functions
        with the names of entry points."""
        names = {"forward", "__call__"}
        for target, value, _ in self.assigned:
            if isinstance(target, ast.Attribute) and target.attr in names:
                names |= {value.id} if isinstance(value, ast.Name) else set()
                names |= {value.attr} if isinstance(value, ast.Attribute) else set()
        # A Triton kernel or a free helper of that name is no entry.
        return [
            function
            for name in sorted(names)
            for function in self.functions.get(name, [])
            if isinstance(self.parents.get(function), ast.ClassDef)
            or name not in {"forward", "__call__"}
        ] + [
            function
            for name in CONVENTIONS
            for function in self.functions.get(name, [])
            if function in self.tree.body and not function.decorator_list
        ]

    @functools.cached_property
    def hot(self) -> set[ast.AST]:
        """Functions that a call of the model may reach, by the names that are mentioned."""
        classes = {node.name: node for node in self.all(ast.ClassDef)}
        mentions: dict[ast.AST | None, set[str]] = {}
        for node in (*self.nodes.get(ast.Name, []), *self.nodes.get(ast.Attribute, [])):
            word = node.id if isinstance(node, ast.Name) else cast("ast.Attribute", node).attr
            if word in self.functions or word in classes:
                mentions.setdefault(self.owner(node), set()).add(word)
        reached: set[ast.AST] = set()
        waiting: list[Function] = list(self.entries)
        while waiting:
            function = waiting.pop()
            if function in reached:
                continue
            reached.add(function)
            for word in mentions.get(function, ()):
                waiting += self.functions.get(word, ())
                if word in classes:
                    waiting += [
                        part for part in classes[word].body if isinstance(part, ast.FunctionDef)
                    ]
        return reached

    def owner(self, node: ast.AST) -> Function | None:
        """Return the innermost function with a name around a node, None at module level."""
        return self.owners.get(node)

    def is_hot(self, node: ast.AST) -> bool:
        """Say whether a node runs when the model is called."""
        return self.owner(node) in self.hot

    def builds_code(self, node: ast.AST) -> bool:
        """Say whether the function around a node, or one that calls it, compiles or loads code."""
        owner = self.owner(node)
        return owner is not None and (owner in self._builders or owner.name in self._of_builders)

    @functools.cached_property
    def _builders(self) -> set[Function | None]:
        # A function around one that compiles or loads code does so, too.
        return {
            cast("Function", around)
            for call, name in self.calls
            if name in _BUILDS
            for around in self.under(call, ast.FunctionDef, ast.AsyncFunctionDef)
        }

    @functools.cached_property
    def _of_builders(self) -> set[str]:
        """Functions that only those call which compile or load code."""
        callers: dict[str, set[Function | None]] = {}
        for call, name in self.calls:
            callers.setdefault(name.rpartition(".")[2], set()).add(self.owner(call))
        return {name for name, owners in callers.items() if owners <= self._builders}

    def under(self, node: ast.AST, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes of these kinds around a node, inside out."""
        parent = self.parents.get(node)
        while parent is not None:
            if isinstance(parent, kinds):
                yield parent
            parent = self.parents.get(parent)

    def name(self, node: ast.AST | None, depth: int = 0) -> str:
        """Return the full dotted name of an expression, "?.attr" on a computed value, or "".

        Import aliases, plain renames, `getattr(x, "y")`, `vars(x)["y"]`, `x.__dict__["y"]`,
        `sys.modules["x"]` and `importlib.import_module("x")` are undone.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        head = ""
        if isinstance(node, ast.Name):
            head = self._alias.get(node.id, node.id)
        elif depth < _DEPTH and isinstance(node, ast.Call):
            function = self.name(node.func, depth + 1)
            text = self.text(node.args[-1]) if node.args else None
            if function in {"getattr", "builtins.getattr"} and len(node.args) > 1:
                text = self.text(node.args[1])
                head = (text and f"{self.name(node.args[0], depth + 1)}.{text}") or ""
            elif function in {"__import__", "importlib.import_module"} and text:
                head = text
        elif depth < _DEPTH and isinstance(node, ast.Subscript):
            text = self.text(node.slice)
            of = self.name(node.value, depth + 1)
            if text and of == "sys.modules":
                head = text
            elif text and of.endswith(".__dict__"):
                head = f"{of.removesuffix('.__dict__')}.{text}"
            elif (
                text
                and isinstance(node.value, ast.Call)
                and node.value.args
                and self.name(node.value.func, depth + 1) in {"vars", "builtins.vars"}
            ):
                head = f"{self.name(node.value.args[0], depth + 1)}.{text}"
        if head:
            parts.append(head)
        elif parts:
            parts.append("?")
        return ".".join(reversed(parts))

    def text(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """Return the text that a string expression is known to have, or None."""
        if depth > _DEPTH:
            return None
        match node:
            case ast.Constant(value=str() as value):
                return value
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self.text(left, depth + 1), self.text(right, depth + 1)
                return None if first is None or second is None else first + second
            case ast.Subscript(
                value=value,
                slice=ast.Slice(lower=None, upper=None, step=ast.UnaryOp(op=ast.USub())),
            ):
                turned = self.text(value, depth + 1)
                return None if turned is None else turned[::-1]
            case ast.Call(func=ast.Attribute(attr="join", value=glue), args=[ast.List(elts=items)]):
                known = [self.text(item, depth + 1) for item in (glue, *items)]
                if any(part is None for part in known):
                    return None
                return str(known[0]).join(str(part) for part in known[1:])
            case _:
                return None

    def string(self, node: ast.Constant | ast.JoinedStr) -> str | None:
        """Return the text of a string that is no prose, its replaced fields as 0; None for others.

        A string that is a part of another one has no text of its own.
        """
        if node in self.prose or isinstance(self.parents.get(node), ast.JoinedStr):
            return None
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
            return "".join(map(str, parts))
        return node.value if isinstance(node.value, str) else None

    def inputs(self, function: Function) -> set[str]:
        """Return the names of a function's arguments without self."""
        given = function.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        named += [one for one in (given.vararg, given.kwarg) if one is not None]
        return {one.arg for one in named} - {"self", "cls", "ctx"}

    def inside(self, function: ast.AST, *kinds: type[Node]) -> list[Node]:
        """Return the nodes of these kinds whose innermost function this is, in text order."""
        return [node for node in self._contents.get(function, []) if isinstance(node, kinds)]

    @functools.cached_property
    def _contents(self) -> dict[ast.AST | None, list[ast.AST]]:
        found: dict[ast.AST | None, list[ast.AST]] = {}
        for node, owner in self.owners.items():
            found.setdefault(owner, []).append(node)
        for nodes in found.values():
            nodes.sort(key=_place)
        return found

    def hit(self, node: ast.AST, confidence: float) -> Hit:
        """Return a hit at a node."""
        line = line_of(node)
        return Hit(self.path, line, quote_line(self.lines, line), confidence)

    def find_returns(self, function: Function) -> list[ast.Return]:
        """Return a function's own return statements that give a value."""
        return [node for node in self.inside(function, ast.Return) if node.value is not None]

    def find_uses(self, function: Function, name: str) -> list[ast.Name]:
        """Return the places in a function that read a name."""
        return [
            node
            for node in self.inside(function, ast.Name)
            if node.id == name and isinstance(node.ctx, ast.Load)
        ]

    def is_model(self, function: ast.AST) -> bool:
        """Say whether a method belongs to the class that is judged, and not to one of its parts."""
        parent = self.parents.get(function)
        classes = self.nodes.get(ast.ClassDef, [])
        return isinstance(parent, ast.ClassDef) and (parent.name == MODEL or len(classes) == 1)

    def find_derived(self, function: Function) -> set[str]:
        """Return the names in a function that depend on the values of its arguments.

        What a call is given together with such a value may have been written by it.
        """
        names = self.inputs(function)
        fixed = {"self", "ctx"} | self.imported_names
        flows: list[tuple[set[str], ast.AST]] = []
        for target, value, _ in self.assigned:
            if value is not None and self.owner(target) is function:
                held = value if isinstance(value, ast.Tuple | ast.List | ast.Dict) else target
                flows.append((collect_names(target) | collect_names(held), value))
        for loop in self.inside(function, ast.For):
            flows.append((collect_names(loop.target), loop.iter))
        for call in self.inside(function, ast.Call):
            values: list[ast.AST] = [*call.args, *call.keywords]
            if isinstance(call.func, ast.Attribute):
                values.append(call.func.value)
            flows.append((set().union(*map(collect_names, values)) - fixed, call))
        sources = [(written, collect_value_names(value)) for written, value in flows if written]
        # Loops carry a value back; four passes reach what real code has.
        for _ in range(4):
            before = len(names)
            for written, read in sources:
                if not names.isdisjoint(read):
                    names |= written
            if len(names) == before:
                break
        return names - fixed

    def find_answering(self) -> set[ast.AST]:
        """Return the entries and the functions whose answers they return as their own."""
        found: set[ast.AST] = set(self.entries)
        waiting = list(self.entries)
        while waiting:
            for node in self.find_returns(waiting.pop()):
                if isinstance(node.value, ast.Call):
                    word = self.name(node.value.func).rpartition(".")[2]
                    new = [one for one in self.functions.get(word, []) if one not in found]
                    found.update(new)
                    waiting += new
        return found

    def is_empty(self, node: ast.expr | None) -> bool:
        """Say whether an expression makes a tensor without writing it."""
        node = strip_views(node)
        if not isinstance(node, ast.Call):
            return False
        name = self.name(node.func)
        return name in _EMPTY or name.rpartition(".")[2] == "new_empty"

    def find_writes(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield every write to an attribute or to a module's dict, with its full name."""
        for target, _, _ in self.assigned:
            if isinstance(target, ast.Attribute) or (
                isinstance(target, ast.Subscript)
                and (
                    self.name(target.value).endswith(".__dict__")
                    or isinstance(target.value, ast.Call)
                    or self.name(target.value) == "sys.modules"
                )
            ):
                name = self.name(target)
                if self.name(getattr(target, "value", None)) == "sys.modules":
                    name = f"sys.modules.{name}"
                yield target, name
        for node in self.all(ast.Delete):
            yield from (
                (target, self.name(target))
                for target in node.targets
                if isinstance(target, ast.Attribute)
            )
        for call, name in self.calls:
            if name in {"setattr", "builtins.setattr", "delattr", "?.__setattr__"} and call.args:
                what = self.text(call.args[1]) if len(call.args) > 1 else None
                yield call, f"{self.name(call.args[0])}.{what or '?'}"
            elif name in {"type.__setattr__", "object.__setattr__"} and len(call.args) > 1:
                yield call, f"{self.name(call.args[0])}.{self.text(call.args[1]) or '?'}"
            elif name.endswith(".__dict__.update"):
                yield call, name.removesuffix(".__dict__.update") + ".?"
            elif name in {"unittest.mock.patch", "unittest.mock.patch.object", "mock.patch"}:
                first = call.args[0] if call.args else None
                yield call, self.text(first) or f"{self.name(first)}.?"

    def index(self) -> None:
        """Walk the tree once, with a stack of its own since hostile trees are deep."""
        stack: list[tuple[ast.AST, Function | None]] = [(self.tree, None)]
        count = 0
        while stack:
            node, owner = stack.pop()
            count += 1
            if count > MAX_NODES:
                self.complete = False
                break
            self.owners[node] = owner
            self.nodes.setdefault(type(node), []).append(node)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                self.prose.add(node.value)
            inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else owner
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                stack.append((child, inner))
        for nodes in self.nodes.values():
            nodes.sort(key=_place)
        self._alias = python_syntax.Names(self.all(ast.Import, ast.ImportFrom)).alias
        # Follow `event = torch.cuda.Event`, where the name is bound once.
        bound: dict[str, list[ast.expr | None]] = {}
        for target, value, _ in self.assigned:
            if isinstance(target, ast.Name):
                bound.setdefault(target.id, []).append(value)
        for name, values in bound.items():
            value = values[0]
            if len(values) == 1 and isinstance(value, ast.Attribute | ast.Call | ast.Subscript):
                full = self.name(value)
                if full.split(".")[0] in self.imported and name not in self._alias:
                    self._alias[name] = full

    @functools.cached_property
    def imported_names(self) -> set[str]:
        """Names that imports bind in this file."""
        return {
            (name.asname or name.name).split(".")[0]
            for node in self.all(ast.Import, ast.ImportFrom)
            for name in node.names
        }

    @functools.cached_property
    def import_roots(self) -> set[str]:
        """Packages that imports name."""
        names = [name.name for node in self.all(ast.Import) for name in node.names]
        names += [node.module or "" for node in self.all(ast.ImportFrom)]
        return {name.split(".")[0] for name in names}

    @functools.cached_property
    def imported(self) -> frozenset[str]:
        """First words of the full names that imports and builtins bring in."""
        plain = {
            name.name.split(".")[0]
            for node in self.all(ast.Import)
            for name in node.names
            if not name.asname
        }
        return frozenset(
            {"builtins", *plain, *(full.split(".")[0] for full in self._alias.values())}
        )


def _place(node: ast.AST) -> tuple[int, int]:
    return line_of(node), getattr(node, "col_offset", 0)


def line_of(node: ast.AST) -> int:
    """Return the line of a node, 1 where it has none."""
    return int(getattr(node, "lineno", 1))


def strip_views(node: ast.expr | None) -> ast.expr | None:
    """Return an expression without the views, copies and conversions around it."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _VIEWS
    ) or isinstance(node, ast.Subscript):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value  # pyright: ignore
    return node


def collect_value_names(node: ast.AST | None) -> set[str]:
    """Return the names in an expression that are used for more than shape, type or place."""
    if node is None:
        return set()
    inspected: set[ast.AST] = set()
    found: list[ast.Name] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part)
        elif isinstance(part, ast.Attribute):
            if part.attr in _ABOUT:
                inspected.add(part.value)
        elif isinstance(part, ast.Call):
            function = part.func
            last = function.attr if isinstance(function, ast.Attribute) else ""
            plain = function.id if isinstance(function, ast.Name) else ""
            if part.args and (last.endswith("_like") or plain in {"len", "isinstance", "type"}):
                inspected.add(part.args[0])
    return {part.id for part in found if part not in inspected}


def reads_any(node: ast.AST | None, names: set[str]) -> bool:
    """Say whether an expression uses one of the names for more than its shape, type or place."""
    return not names.isdisjoint(collect_value_names(node))


def collect_names(node: ast.AST) -> set[str]:
    """Return the names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def has_work(node: ast.AST) -> bool:
    """Say whether a statement calls anything but views, copies and questions."""
    return any(
        isinstance(part, ast.Call)
        and not (
            isinstance(part.func, ast.Attribute) and part.func.attr in _VIEWS | _ABOUT | _QUESTIONS
        )
        and not (isinstance(part.func, ast.Name) and part.func.id in _PLAIN)
        for part in ast.walk(node)
    )


def is_identity(node: ast.AST) -> bool:
    """Say whether a comparison asks whether two names are one object, neither of them None.

    Whether `x.dtype is torch.bfloat16` says nothing about the object.
    """
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
        and not any(
            isinstance(part, ast.Constant) or getattr(part, "attr", None) in _ABOUT
            for part in (node.left, *node.comparators)
        )
    )


# --- C++ and CUDA, parsed by tree-sitter ---

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
        first: Line of the file at which the text begins.
        last: Last line of the text; None for a whole file.
    """
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES or b"{" not in data or b"(" not in data:
        return []
    found = capture_nodes(data, _QUERY)
    if not found.get("function"):
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
        # Where the name is one: in the function, lambda or class around it, or in the whole text.
        around = node
        while around.parent is not None:
            around = around.parent
            if around.type in _SCOPES:
                break
        extent = around.start_byte, around.end_byte
        locals_.setdefault(_text(node).lstrip("&* "), []).append(extent)

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


# --- all files of a kernel ---


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

    def find_patches(self) -> Iterator[tuple[Module, ast.AST, str]]:
        """Yield every write to an attribute of an imported module or class, however it is spelled.

        Settings under torch.backends and the compiler's config are meant to be set: left out.
        """
        for module in self.modules:
            for node, name in module.find_writes():
                if name.split(".")[0] in _PATCHED_ROOTS and not f"{name}.".startswith(_SETTINGS):
                    yield module, node, name


def parse_source(code: str, other_files: Sequence[Mapping[str, str]] | None) -> Source:
    """Parse a kernel's files; does not raise for any text.

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
        if (text := module.string(node)) is not None:
            source.native += parse_native(path, text, node.lineno, lines, last=node.end_lineno)
