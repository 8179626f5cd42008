"""A Python file of a kernel: its nodes by kind, full names, and what `forward` reaches."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from evaluators.audit.hits import Hit, quote_line, split_names
from store.code.entry_points import CONVENTIONS

MAX_NODES = 400_000
"""A tree of more nodes is not searched: no kernel is that large."""
_DEPTH = 40
_BUILDS = (
    split_names("load load_inline", "torch.utils.cpp_extension.")
    | split_names("Popen run call check_call check_output", "subprocess.")
    | split_names("CDLL PyDLL cdll.LoadLibrary", "ctypes.")
    | split_names("load_library", "torch.ops.")
    | {"importlib.util.spec_from_file_location"}
)

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
        return {self.owner(call) for call, name in self.calls if name in _BUILDS} - {None}

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
        for node in self.all(ast.Import, ast.ImportFrom):
            self._import(node)
        self._rename()

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

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for name in node.names:
            if isinstance(node, ast.Import):
                if name.asname:
                    self._alias[name.asname] = name.name
            elif node.module and not node.level:
                self._alias[name.asname or name.name] = f"{node.module}.{name.name}"

    def _rename(self) -> None:
        """Follow `event = torch.cuda.Event`, where the name is bound once."""
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


def _place(node: ast.AST) -> tuple[int, int]:
    return line_of(node), getattr(node, "col_offset", 0)


def line_of(node: ast.AST) -> int:
    """Return the line of a node, 1 where it has none."""
    return int(getattr(node, "lineno", 1))
