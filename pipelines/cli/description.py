"""One pipeline in words: what it makes, its options, its template and the SQL behind it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from types import ModuleType
from typing import Any

from pipelines.contract.rows import Request
from pipelines.rendering.templates import template_hash
from pipelines.selection.rules import OURS, OWN
from store.commandline.members import Member
from store.lake.reader import about


def description(one: Member, module: ModuleType) -> str:
    """Return a pipeline as text for the terminal."""
    lines = [(module.__doc__ or one.about).strip(), ""]
    lines += [f"makes      {module.DATASET_TYPE} rows"]
    lines += [f"file       {one.file}"]
    lines += [f"template   {module.TEMPLATE} ({template_hash(module.TEMPLATE)[:12]})"]
    for root in (OURS, OWN):
        for file in sorted((root / one.file.stem).glob("*.sql")):
            lines.append(f"sql        {file.name}: {about(file.read_text('utf-8'))}")
    lines += ["", "options"]
    for kind in (module.Config, Request):
        lines += [f"  {line}" for line in _options(kind)]
    return "\n".join(lines)


def _options(kind: type[Any]) -> Iterator[str]:
    """Yield one line per field of a dataclass: option, default, and the string under the field."""
    docs: dict[str, str] = {}
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    for before, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            docs[before.target.id] = " ".join(str(after.value.value).split())
    for one in fields(kind):
        option = "--" + one.name.replace("_", "-")
        yield f"{option:<16} {docs.get(one.name, '')} [{one.default}]"
