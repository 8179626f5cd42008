"""Returns memory that nothing has written, which may still contain an earlier answer."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, read_self_attribute, strip_views

VERSION = 2


def find(source: Source) -> Iterator[Hit]:
    """Yield returns of a fresh tensor that is not used anywhere else."""
    for module in source.modules:
        mentioned: dict[str, int] = {}
        for node in module.all(ast.Attribute):
            name = read_self_attribute(node)
            if name is not None and isinstance(node.ctx, ast.Load):
                mentioned[name] = mentioned.get(name, 0) + 1
        values: dict[str, list[bool]] = {}
        for target, value, _ in module.assigned:
            if (name := read_self_attribute(target)) is not None:
                values.setdefault(name, []).append(module.is_empty(value))
        kept = {name for name, empty in values.items() if all(empty)}
        for function in module.entries:
            made: dict[str, list[bool]] = {}
            for node in module.inside(function, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        made.setdefault(target.id, []).append(module.is_empty(node.value))
            for node in module.find_returns(function):
                value = strip_views(node.value)
                sizes = node.value.args if isinstance(node.value, ast.Call) else []
                if any(isinstance(size, ast.Constant) and size.value == 0 for size in sizes):
                    continue  # a tensor without elements
                if (
                    module.is_empty(node.value)
                    or (
                        isinstance(value, ast.Name)
                        and value.id in made
                        and all(made[value.id])
                        and len(module.find_uses(function, value.id)) == 1
                    )
                    or (
                        (name := read_self_attribute(value)) is not None
                        and name in kept
                        and mentioned.get(name) == 1
                    )
                ):
                    yield module.hit(node, 0.9)
