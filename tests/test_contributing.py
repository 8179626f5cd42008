"""CONTRIBUTING leads through the code by names, and each of them is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECTION = (
    (ROOT / "CONTRIBUTING.md")
    .read_text("utf-8")
    .partition("## Follow the code\n")[2]
    .partition("\n## ")[0]
)
NAME = r"`((?:store|pipelines|evaluators|trainers)(?:\.\w+)+)`"


def is_defined(name: str) -> bool:
    """Whether a dotted name is a module of ours, or a function, a class or a method in one.

    Modules are read and not imported, because some of them import TRL.
    """
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:size])
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if not file.is_file():
            continue
        body = ast.parse(file.read_text("utf-8")).body
        for part in parts[size:]:
            owners = [
                node
                for node in body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                and node.name == part
            ]
            if not owners:
                return False
            body = owners[0].body
        return True
    return False


def test_every_name_that_the_page_leads_through_is_there() -> None:
    names = dict.fromkeys(re.findall(NAME, SECTION))
    assert len(re.findall(r"(?m)^### ", SECTION)) == 4
    assert len(names) > 50
    assert [name for name in names if not is_defined(name)] == []


def test_a_name_that_is_gone_is_not_defined() -> None:
    assert is_defined("store.writing.writer.Writer.append")
    assert not is_defined("store.writing.writer.Writer.appendix")
    assert not is_defined("store.writing.nothing.at_all")
