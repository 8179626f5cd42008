"""Keeps an answer and returns it again: by shape, address, identity or version, or always."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import (
    Hit,
    Module,
    Source,
    collect_names,
    has_work,
    is_identity,
    read_self_attribute,
    reads_any,
    strip_views,
)

VERSION = 3
_IDENTITY = frozenset(("data_ptr", "_version", "_cdata"))
_CACHES = frozenset(("functools.lru_cache", "functools.cache"))
_GRAPHS = frozenset(("CUDAGraph", "graph", "make_graphed_callables"))
_NATIVE_GRAPHS = frozenset(("cudaStreamBeginCapture", "cuStreamBeginCapture", "capture_begin"))


def find(source: Source) -> Iterator[Hit]:
    """Yield lookups by a tensor's identity, answers that are kept, and cached functions."""
    captures = any(call.name in _NATIVE_GRAPHS for one in source.native for call in one.calls)
    for module in source.modules:
        for functions in module.functions.values():
            for function in functions:
                for decorator in function.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if module.name(called) in _CACHES:
                        entry = function in module.entries
                        sure = 0.9 if entry else 0.3 if function in module.hot else 0.1
                        yield module.hit(function, sure)
        answering = module.find_answering()
        graphs = captures or any(name.rpartition(".")[2] in _GRAPHS for _, name in module.calls)
        # Public methods of classes without an entry, such as `step` of a decoder.
        steps = [
            part
            for one in module.all(ast.ClassDef)
            if not any(entry in one.body for entry in module.entries)
            for part in one.body
            if isinstance(part, ast.FunctionDef) and not part.name.startswith("_")
        ]
        for function in [*module.entries, *steps]:
            if not graphs and isinstance(function, ast.FunctionDef):
                yield from _find_prepared(module, function)
        for function in module.hot:
            if isinstance(function, ast.FunctionDef):
                # A key may also say when to prepare a buffer, a layout or a graph anew.
                most = 0.8 if function in answering and _returns_kept(module, function) else 0.4
                for hit in _find_keyed(module, function):
                    yield hit._replace(confidence=min(hit.confidence, most))
                # Each replay writes again what a capture fills.
                sure = 0.3 if graphs else 0.8 if function in module.entries else 0.4
                yield from (hit._replace(confidence=sure) for hit in _find_kept(module, function))


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
            if is_identity(node) and any(
                isinstance(part, ast.Name) and part.id in module.inputs(function) for part in parts
            ):
                yield module.hit(node, 0.8)
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


def _returns_kept(module: Module, function: ast.FunctionDef) -> bool:
    """Say whether a function may return what it keeps without any work in that call."""
    outside = _list_outside_names(module, function)
    looked_up = {
        target.id
        for node in module.inside(function, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
        and (
            _container_name(node.value, outside)
            or (
                isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
                and node.value.func.attr in {"get", "setdefault", "pop"}
            )
        )
    }
    calls = (module.name(call.func) for call in module.inside(function, ast.Call))
    if any(name.rpartition(".")[2] == "replay" for name in calls):
        return False  # a replay writes again what the capture has filled
    for node in module.find_returns(function):
        value = strip_views(node.value)
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        kept = {_container_name(part, outside | looked_up) for part in parts} - {None}
        if not kept:
            continue
        block = next(module.under(node, ast.If, ast.FunctionDef))
        if isinstance(block, ast.If):
            if not any(has_work(step) for step in (*block.body, *block.orelse)):
                return True
        elif isinstance(block, ast.FunctionDef):
            # What a branch computes, the statements after it return.
            branches = [n for n, step in enumerate(block.body) if isinstance(step, ast.If)]
            last = max(branches, default=0)
            written = {
                _container_name(target, outside)
                for part in ast.walk(block.body[last])
                if isinstance(part, ast.Assign)
                for target in part.targets
            }
            if kept & written and not any(has_work(step) for step in block.body[last + 1 :]):
                return True
    return False


def _find_prepared(module: Module, function: ast.FunctionDef) -> Iterator[Hit]:
    """Yield branches that compute from an input only if it is another object than before."""
    inputs = module.inputs(function)
    for node in module.inside(function, ast.If):
        for part in ast.walk(node.test):
            # Whether it asks for the identity or the address of a tensor.
            has_key = is_identity(part) or (
                isinstance(part, ast.Compare)
                and not _tests_alignment([part.left, *part.comparators])
                and any(getattr(one, "attr", None) == "data_ptr" for one in ast.walk(part))
            )
            names = collect_names(part) & inputs if has_key else set[str]()
            if names and any(reads_any(step, names) and has_work(step) for step in node.body):
                versions = "version" in ast.unparse(node.test)
                yield module.hit(part, 0.4 if versions else 0.6)


def _list_outside_names(module: Module, function: ast.FunctionDef) -> set[str]:
    """Return the variables of a function that outlive its call."""
    own = {one.id for one in module.inside(function, ast.Name) if isinstance(one.ctx, ast.Store)}
    declared = module.inside(function, ast.Global, ast.Nonlocal)
    top = {
        target.id
        for target, _, node in module.assigned
        if isinstance(target, ast.Name) and module.owner(node) is None
    }
    return (top - own) | {name for node in declared for name in node.names}


def _tests_alignment(parts: list[ast.expr]) -> bool:
    """Say whether a comparison asks for `x.data_ptr() % 16 == 0`, or for NULL."""
    return any(isinstance(part, ast.Constant) for part in parts) or any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in parts
    )


def _find_kept(module: Module, function: ast.FunctionDef) -> Iterator[Hit]:
    """Yield answers that a first call stores under a condition and later calls return."""
    names = module.find_derived(function)
    outside = _list_outside_names(module, function)
    given = {_container_name(node.value, outside) for node in module.find_returns(function)} - {
        None
    }
    for node in module.inside(function, ast.Assign):
        guards = list(module.under(node, ast.If, ast.Try, ast.FunctionDef))
        if not guards or isinstance(guards[0], ast.FunctionDef):
            continue
        # A buffer that is kept between calls does not contain an answer yet.
        if module.is_empty(node.value) or not reads_any(node.value, names):
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
