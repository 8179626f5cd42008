"""Counts its calls or reads the clock, and behaves differently later."""

import ast
from collections.abc import Iterator
from typing import cast

from evaluators.audit.source import Hit, Module, Source, read_self_attribute, split_names

VERSION = 4
_CLOCKS = split_names("time perf_counter perf_counter_ns monotonic monotonic_ns time_ns", "time.")


def find(source: Source) -> Iterator[Hit]:
    """Yield counters that a call of the model increments and that one of its branches reads."""
    for module in source.modules:
        # Targets that outlive a call and decide a branch in it.
        tested: set[str] = set()
        for node in module.all(ast.If, ast.IfExp, ast.While):
            for part in ast.walk(node.test) if module.is_hot(node) else ():
                if isinstance(part, ast.Attribute | ast.Name):
                    tested.add(read_self_attribute(part) or module.name(part))
                    tested.add(getattr(part, "id", ""))
        graphs = any(name.endswith(("CUDAGraph", "cuda.graph")) for _, name in module.calls)
        for node in module.all(ast.AugAssign, ast.Assign):
            if not module.is_hot(node) or _is_compiled(module, node):
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                name = _kept_name(module, target)
                if name is not None and name in tested and _is_count(node, name):
                    # Warm-up calls before a capture are counted too.
                    yield module.hit(node, 0.4 if graphs else 0.7)
        for call, name in module.calls:
            if name in _CLOCKS and module.is_hot(call):
                decides = _decides(module, call) and not module.builds_code(call)
                yield module.hit(call, 0.6 if decides else 0.4)
            elif (
                name == "next"
                and module.is_hot(call)
                and call.args
                and _kept_name(module, call.args[0])
            ):
                yield module.hit(call, 0.5)


def _is_compiled(module: Module, node: ast.AST) -> bool:
    """Say whether a node is in a function that CuTe compiles: its objects end with the launch."""
    return any(
        module.name(decorator) in {"cutlass.cute.jit", "cutlass.cute.kernel"}
        for function in module.under(node, ast.FunctionDef)
        for decorator in cast("ast.FunctionDef", function).decorator_list
    )


def _decides(module: Module, call: ast.Call) -> bool:
    """Say whether a time decides a branch, beyond the first call for a shape.

    An autotuner times its variants where it has no choice for a shape yet.
    """
    for node in module.under(call, ast.If, ast.While, ast.Compare):
        if not isinstance(node, ast.If) or any(part is call for part in ast.walk(node.test)):
            continue
        match node.test:  # something that is not there yet
            case ast.Compare(ops=[ast.NotIn()]):
                return False
            case ast.Compare(ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
                return False
            case ast.UnaryOp(ast.Not(), ast.Call(func=ast.Name("hasattr"))):
                return False
            case _:
                pass
    return any(True for _ in module.under(call, ast.If, ast.While, ast.Compare))


def _kept_name(module: Module, node: ast.AST) -> str | None:
    """Return the name of a target that outlives the call: an attribute or a global."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return read_self_attribute(node) or module.name(node)
    if isinstance(node, ast.Name):
        owner = module.owner(node)
        declared = {
            name
            for one in (module.inside(owner, ast.Global, ast.Nonlocal) if owner else [])
            for name in one.names
        }
        local = owner is not None and any(
            part.id == node.id and isinstance(part.ctx, ast.Store)
            for part in module.inside(owner, ast.Name)
        )
        if node.id in declared or (owner is not None and not local):
            return node.id
    return None


def _is_count(node: ast.AugAssign | ast.Assign, name: str) -> bool:
    """Say whether a statement adds a constant to its target."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.value, ast.Constant)
    return (
        isinstance(node.value, ast.BinOp)
        and isinstance(node.value.right, ast.Constant)
        and (read_self_attribute(node.value.left) or getattr(node.value.left, "id", None)) == name
    )
