"""Chooses its algorithm by the size of the values that it gets."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, collect_value_names, split_names

VERSION = 1
_SUMMARIES = split_names("amax amin max min abs norm std var mean sum aminmax")


def find(source: Source) -> Iterator[Hit]:
    """Yield branches that a threshold on a summary of an input decides."""
    for module in source.modules:
        for function in module.hot:
            if not isinstance(function, ast.FunctionDef):
                continue
            known = {
                target.id: node.value
                for node in module.inside(function, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node in module.inside(function, ast.If):
                test: ast.AST = node.test
                if isinstance(test, ast.Name):
                    test = known.get(test.id, test)
                # It compares a summary of an input with a number other than zero.
                if any(
                    isinstance(one, ast.Compare)
                    and isinstance(one.comparators[0], ast.Constant)
                    and isinstance(one.comparators[0].value, float)
                    and bool(one.comparators[0].value)
                    and any(
                        isinstance(part, ast.Call)
                        and isinstance(part.func, ast.Attribute)
                        and part.func.attr in _SUMMARIES
                        for part in ast.walk(one.left)
                    )
                    and not module.inputs(function).isdisjoint(collect_value_names(one.left))
                    for one in ast.walk(test)
                ):
                    yield module.hit(node, 0.6)
