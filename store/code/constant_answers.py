"""Finds methods that answer with a constant: zeros or ones built without reading the input."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set

from store.code.python_syntax import split_names

_ENTRY = split_names("forward __call__")
_BUILD = split_names("zeros ones full zeros_like ones_like full_like", "torch.")
_BUILD_METHODS = split_names("new_zeros new_ones new_full zero_")
_ALLOCATE = split_names("empty empty_like", "torch.")
_RESHAPE = split_names(
    "expand expand_as clone to view reshape detach contiguous repeat cuda requires_grad_"
)
# Attributes and methods of an input that do not read its values.
_ABOUT = split_names(
    "shape device dtype is_cuda requires_grad ndim layout size dim numel is_contiguous"
)

Resolve = Callable[[ast.expr], str]


def is_constructor(name: str) -> bool:
    """Return whether a call of this resolved name builds a constant tensor."""
    return name in _BUILD or name.rpartition(".")[2] in _BUILD_METHODS


def has_constant_answer(model: ast.ClassDef, resolve: Resolve) -> bool:
    """Return whether `forward` or `__call__` of a class returns a constant on some path.

    A constant is a tensor that zeros, ones or full builds from shapes only, or that is zeroed in
    place, such a tensor in an attribute that nothing else writes, the answer of a method that
    returns such a tensor, or a view of one of these. A return guarded by a test for empty
    input does not count. Functions that replace `forward` or `__call__` are checked like them.
    A constant in a variable must have no other use. Asking for its shape or type is none.
    """
    nodes = list(ast.walk(model))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    replacing = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Name)
        and any(isinstance(t, ast.Attribute) and t.attr in _ENTRY for t in node.targets)
    }
    entries = [node for node in functions if node.name in _ENTRY | replacing and _list_inputs(node)]
    if not entries:
        return False
    answers = {
        node.name: _list_answers(node, set(), resolve)
        for node in functions
        if node.name not in _ENTRY
    }
    builders = {name for name, constants in answers.items() if constants and all(constants)}

    def resolve_builders(node: ast.expr) -> str:
        return "torch.zeros" if read_self_attribute(node) in builders else resolve(node)

    written, touched = _collect_attributes(nodes)
    constant = {
        name
        for name, values in written.items()
        if name not in touched
        and any(not _is_none(value) for value in values)
        and all(_is_none(value) or _is_built(value, resolve_builders) for value in values)
    }
    return any(
        any(_list_answers(entry, constant, resolve_builders, _list_inputs(entry)))
        for entry in entries
    )


def _list_inputs(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return {argument.arg for argument in [*named, *extra]} - {"self", "cls"}


def _collect_attributes(nodes: list[ast.AST]) -> tuple[dict[str, list[ast.expr]], set[str]]:
    """Return each self attribute's assigned values, and those that anything else may write."""
    written: dict[str, list[ast.expr]] = {}
    touched: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if (name := read_self_attribute(target)) is not None:
                    written.setdefault(name, []).append(node.value)
                elif isinstance(target, ast.Subscript):
                    touched |= _collect_names(target.value)
                elif isinstance(target, ast.Tuple):
                    touched |= _collect_names(target)
        elif isinstance(node, ast.AugAssign):
            touched |= _collect_names(node.target)
        elif isinstance(node, ast.Call):
            function = node.func
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="register_buffer"),
                    args=[ast.Constant(value=str() as buffer), value, *_],
                ):
                    written.setdefault(buffer, []).append(value)
                case _:
                    pass
            if isinstance(function, ast.Attribute) and function.attr.endswith("_"):
                touched |= _collect_names(function.value)
            # A call may fill a buffer that it receives, and so may code that takes its address.
            for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
                touched |= _collect_names(value)
            if isinstance(function, ast.Attribute) and function.attr == "data_ptr":
                touched |= _collect_names(function.value)
    return written, touched


def read_self_attribute(node: ast.AST | None) -> str | None:
    """Return `x` of `self.x`, or None."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ):
        return node.attr
    return None


def _collect_names(node: ast.expr) -> set[str]:
    names = (read_self_attribute(part) for part in ast.walk(node) if isinstance(part, ast.expr))
    return {name for name in names if name is not None}


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_built(node: ast.expr, resolve: Resolve) -> bool:
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _RESHAPE
    ):
        node = node.func.value
    if not isinstance(node, ast.Call):
        return False
    name = resolve(node.func)
    if not is_constructor(name):
        return False
    fill = node.args[1:2] if "full" in name else []
    return all(isinstance(value, ast.Constant | ast.UnaryOp) for value in fill)


def _list_answers(
    function: ast.FunctionDef,
    constant: set[str],
    resolve: Resolve,
    inputs: Set[str] = frozenset(),
) -> list[bool]:
    """Return for each value that a function returns whether it is a constant."""
    zeroed: set[str] = set()
    local: dict[str, list[ast.expr]] = {}
    loads: dict[str, int] = {}
    asked = {
        id(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr in _ABOUT
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    local.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.Expr):
            match node.value:
                case ast.Call(func=ast.Attribute(attr="zero_", value=ast.Name(id=name) as value)):
                    asked.add(id(value))
                    zeroed.add(name)
                case _:
                    pass
        elif (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in asked
        ):
            loads[node.id] = loads.get(node.id, 0) + 1

    def is_constant(node: ast.expr, depth: int = 0) -> bool:
        if depth > 20:
            return False
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                return is_constant(body, depth + 1) and is_constant(orelse, depth + 1)
            case ast.Subscript(value=value):
                return is_constant(value, depth + 1)
            case ast.Name(id=name) if name in local and loads.get(name) == 1:
                return all(
                    is_constant(value, depth + 1)
                    or (
                        name in zeroed
                        and isinstance(value, ast.Call)
                        and resolve(value.func) in _ALLOCATE
                    )
                    for value in local[name]
                )
            case ast.Attribute():
                return read_self_attribute(node) in constant
            case ast.Call(func=ast.Attribute(attr=method, value=value)) if method in _RESHAPE:
                return is_constant(value, depth + 1)
            case _:
                return _is_built(node, resolve) and not _reads_input(node, inputs)

    return [
        node.value is not None and is_constant(node.value) for node in _list_returns(function.body)
    ]


def _list_returns(body: list[ast.stmt]) -> Iterator[ast.Return]:
    """Yield the function's own returns, without those guarded by a test for empty input."""
    for statement in body:
        match statement:
            case ast.Return():
                yield statement
            case ast.If(test=test, body=inner, orelse=orelse):
                if not _tests_emptiness(test):
                    yield from _list_returns(inner)
                yield from _list_returns(orelse)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                pass
            case ast.Try(body=inner, handlers=handlers, orelse=orelse, finalbody=final):
                yield from _list_returns(inner + orelse + final)
                for handler in handlers:
                    yield from _list_returns(handler.body)
            case ast.For() | ast.While():
                yield from _list_returns(statement.body + statement.orelse)
            case ast.With():
                yield from _list_returns(statement.body)
            case _:
                pass


def _tests_emptiness(test: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Compare)
        and any(
            isinstance(value, ast.Constant) and value.value in (0, 1) for value in part.comparators
        )
        and any(
            isinstance(inner, ast.Attribute) and inner.attr in {"numel", "shape", "size"}
            for inner in ast.walk(part.left)
        )
        for part in ast.walk(test)
    )


def _reads_input(node: ast.expr, inputs: Set[str]) -> bool:
    """Return whether an expression uses an input for more than its shape, type or place."""
    asked = {
        id(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and part.attr in _ABOUT | _BUILD_METHODS
    }
    asked |= {
        id(part.args[0])
        for part in ast.walk(node)
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr.endswith("_like")
        and part.args
    }
    return any(
        isinstance(part, ast.Name) and part.id in inputs and id(part) not in asked
        for part in ast.walk(node)
    )
