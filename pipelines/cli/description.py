"""One pipeline in words: what it makes, its options, its template and the SQL behind it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

from pipelines.contract import Request
from pipelines.rendering.templates import template_hash
from pipelines.selection.queries import OURS, OWN
from store import read_description
from store.commandline.members import Member


def describe(member: Member, module: ModuleType) -> str:
    """Return a pipeline as text for the terminal."""
    lines = [(module.__doc__ or member.about).strip(), ""]
    lines += [f"makes      {module.DATASET_TYPE} rows"]
    lines += [f"file       {member.file}"]
    lines += [f"template   {module.TEMPLATE} ({template_hash(module.TEMPLATE)[:12]})"]
    for root in (OURS, OWN):
        for file in sorted((root / member.file.stem).glob("*.sql")):
            lines.append(f"sql        {file.name}: {read_description(file.read_text('utf-8'))}")
    lines += ["", "options"]
    for kind in (module.Config, Request):
        lines += [f"  {line}" for line in _describe_options(kind)]
    return "\n".join(lines)


def _describe_options(kind: type[Any]) -> Iterator[str]:
    """Yield one line per field of a dataclass: option, text and default."""
    texts: dict[str, str] = {}
    for part in reversed(kind.__mro__[:-1]):
        texts |= _read_field_texts(part)
    for option in fields(kind):
        default = "none" if option.default is None else option.default
        yield f"--{option.name.replace('_', '-'):<14} {texts.get(option.name, '')} [{default}]"


def _read_field_texts(kind: type[Any]) -> dict[str, str]:
    """Return the string under each field that a class declares itself."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        before.target.id: " ".join(str(after.value.value).split())
        for before, after in zip(body.body, body.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
