"""Answers with a constant that was built without reading the input."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source
from store import constant_answers

VERSION = 2


def find(source: Source) -> Iterator[Hit]:
    """Yield the entry of each class that returns zeros, ones or full on some path."""
    for module in source.modules:
        if not any(constant_answers.is_constructor(name) for _, name in module.calls):
            continue
        for model in module.all(ast.ClassDef):
            if constant_answers.has_constant_answer(model, module.name):
                inner = [
                    node for node in module.entries if model in module.under(node, ast.ClassDef)
                ]
                yield module.hit(inner[0] if inner else model, 0.7)
