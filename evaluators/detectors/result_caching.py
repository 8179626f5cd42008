"""Keeps an answer and returns it again: by shape, address, identity or version, or always."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from evaluators.audit.flow import (
    collect_names,
    find_derived,
    find_returns,
    is_empty,
    read_self_attribute,
    reads_any,
)
from evaluators.audit.hits import Hit
from evaluators.audit.python_source import Function, Module
from evaluators.audit.source import Source

VERSION = 1
CLASS = "result_caching"
_IDENTITY = frozenset(("data_ptr", "_version", "_cdata"))
_CACHES = frozenset(("functools.lru_cache", "functools.cache"))
_GRAPHS = frozenset(("CUDAGraph", "graph", "make_graphed_callables"))


def find(source: Source) -> Iterator[Hit]:
    """Yield lookups by a tensor's identity, answers that are kept, and cached functions."""
    for module in source.modules:
        for functions in module.functions.values():
            for function in functions:
                yield from _find_decorated(module, function)
        graphs = any(name.rpartition(".")[2] in _GRAPHS for _, name in module.calls)
        for function in module.hot:
            if isinstance(function, ast.FunctionDef):
                yield from _find_keyed(module, function)
                # Each replay writes again what a capture fills.
                sure = 0.3 if graphs else 0.8 if function in module.entries else 0.4
                yield from (hit._replace(confidence=sure) for hit in _find_kept(module, function))


def _find_decorated(module: Module, function: Function) -> Iterator[Hit]:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if module.name(called) in _CACHES:
            entry = function in module.entries
            yield module.hit(function, 0.9 if entry else 0.3 if function in module.hot else 0.1)


def _weigh_identity(module: Module, node: ast.AST) -> float:
    """Return the confidence that a key identifies a tensor rather than its values."""
    best = 0.0
    for part in ast.walk(node):
        if (isinstance(part, ast.Attribute) and part.attr in _IDENTITY) or (
            isinstance(part, ast.Call) and module.name(part.func) in {"id", "hash"}
        ):
            # For a parameter, it says when to prepare the weights again.
            of = part.value if isinstance(part, ast.Attribute) else (*part.args, None)[0]
            best = max(best, 0.3 if of is not None and "self" in collect_names(of) else 0.8)
    return best


def _find_keyed(module: Module, function: ast.FunctionDef) -> Iterator[Hit]:
    """Yield subscripts, comparisons and lookups whose key is a tensor's address or identity."""
    keys = {
        target.id: sure
        for node in module.inside(function, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        # An address that is passed to a function is not a key: only bare values and tuples are.
        and (
            not isinstance(node.value, ast.Call)
            or isinstance(node.value.func, ast.Attribute)
            or module.name(node.value.func) in {"id", "hash", "tuple"}
        )
        and (sure := _weigh_identity(module, node.value))
    }
    for node in module.inside(function, ast.Subscript, ast.Compare, ast.Call):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            parts = [node.slice]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if _tests_alignment(parts):
                continue
        elif isinstance(node.func, ast.Attribute) and node.func.attr in {
            "get",
            "setdefault",
            "pop",
        }:
            parts = list(node.args[:1])
        sure = 0.0
        for part in parts:
            known = keys.get(part.id, 0.0) if isinstance(part, ast.Name) else 0.0
            sure = max(sure, known, _weigh_identity(module, part))
        if sure:
            yield module.hit(node, sure)


def _tests_alignment(parts: list[ast.expr]) -> bool:
    """Say whether a comparison asks for `x.data_ptr() % 16 == 0`, or for NULL."""
    return any(isinstance(part, ast.Constant) for part in parts) or any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in parts
    )


def _find_kept(module: Module, function: ast.FunctionDef) -> Iterator[Hit]:
    """Yield answers that a first call stores under a condition and later calls return."""
    names = find_derived(module, function)
    outside = {
        name for node in module.inside(function, ast.Global, ast.Nonlocal) for name in node.names
    }
    given = {_container_name(node.value, outside) for node in find_returns(module, function)} - {
        None
    }
    for node in module.inside(function, ast.Assign):
        guards = list(module.under(node, ast.If, ast.Try, ast.FunctionDef))
        if not guards or isinstance(guards[0], ast.FunctionDef):
            continue
        # A buffer that is kept between calls does not contain an answer yet.
        if is_empty(module, node.value) or not reads_any(node.value, names):
            continue
        for target in node.targets:
            if _container_name(target, outside) in given:
                yield module.hit(node, 0.8)


def _container_name(node: ast.AST | None, outside: set[str]) -> str | None:
    """Return the attribute or global behind an expression or its item."""
    while isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"clone", "detach", "view", "to"}
    ):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value  # pyright: ignore
    if isinstance(node, ast.Name) and node.id in outside:
        return node.id
    return read_self_attribute(node)
