"""Other shapes of a task, at which a mutant may differ from its original."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

_DIMENSIONS = (1, 7, 33, 130)
"""Sizes that are drawn: one, odd, and more than a block."""


def draw_shapes(task: str, axes: Mapping[str, Any], device: str) -> list[dict[str, Any]]:
    """Return values for names of a task's text by shape, its own shape first.

    A name is an axis if the task's text gives it a whole number of two or more. Shapes that the
    task does not accept are left out where they are tried.

    >>> draw_shapes("ROWS = 64\\nEPS = 1e-5", {}, "cpu")[:3]
    [{}, {'ROWS': 1}, {'ROWS': 7}]
    """
    own = {name: value for name, value in _find_sizes(task).items()} | dict(axes)
    sizes = [name for name, value in own.items() if isinstance(value, int) and value > 1]
    shapes = [dict(axes)]
    for number, name in enumerate(sizes):
        for size in _DIMENSIONS[number % 2 :: 2] if len(sizes) > 1 else _DIMENSIONS:
            shapes.append({**axes, name: size})
    return shapes[: 1 + 6]


def _find_sizes(task: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in ast.parse(task).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and type(node.value.value) is int:
                    found[target.id] = node.value.value
    return found
