"""Changes the inputs of the call, which the caller may use again."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_HARMLESS = split_names("requires_grad_ retain_grad_ share_memory_ record_stream_")
_EMPTYING = split_names("resize_ set_ resize_as_")


def find(source: Source) -> Iterator[Hit]:
    """Yield writes into arguments of the model that have not been replaced by a copy before."""
    for module in source.modules:
        for function in module.entries:
            if not module.is_model(function):
                continue
            inputs = module.inputs(function)
            replaced: dict[str, int] = {}
            for name in module.inside(function, ast.Name):
                if isinstance(name.ctx, ast.Store) and name.id in inputs:
                    parent = module.parents.get(name)
                    if not isinstance(parent, ast.AugAssign):
                        replaced.setdefault(name.id, name.lineno)
            for node, name, sure in _find_writes(
                module.inside(function, ast.Call, ast.AugAssign, ast.Assign)
            ):
                if name in inputs and node.lineno <= replaced.get(name, node.lineno):
                    yield module.hit(node, sure)


def _find_writes(
    nodes: list[ast.Call | ast.AugAssign | ast.Assign],
) -> Iterator[tuple[ast.expr | ast.stmt, str, float]]:
    """Yield in-place writes: the node, the root's name, the confidence."""
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            # `x += 1` on a tensor works in place.
            yield node, _root_name(node.target), 0.6
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield node, _root_name(target), 0.6
                elif isinstance(target, ast.Attribute) and target.attr == "data":
                    yield node, _root_name(target), 0.8
        else:
            function = node.func
            if (
                isinstance(function, ast.Attribute)
                and function.attr.endswith("_")
                and not function.attr.endswith("__")
                and function.attr not in _HARMLESS
            ):
                yield node, _root_name(function.value), 0.9 if function.attr in _EMPTYING else 0.6
            for keyword in node.keywords:
                if keyword.arg == "out":
                    yield node, _root_name(keyword.value), 0.6
                elif (
                    keyword.arg == "inplace"
                    and isinstance(keyword.value, ast.Constant)
                    and keyword.value.value is True
                    and node.args
                    and isinstance(node.args[0], ast.Name)
                ):
                    yield node, node.args[0].id, 0.6


def _root_name(node: ast.AST) -> str:
    """Return the name of the tensor behind a view: `x` of `x.data[0]` or `x.view(-1)`."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"view", "detach", "view_as", "squeeze", "unsqueeze", "t"}
        ):
            node = node.func.value
        else:
            return node.id if isinstance(node, ast.Name) else ""
