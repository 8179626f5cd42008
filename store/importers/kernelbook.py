"""KernelBook (GPUMODE/KernelBook): PyTorch modules with the Triton code that Inductor made.

Reads the Parquet form with the columns entry_point, python_code, triton_code,
original_triton_code, repo_name, module_name, synthetic, uuid and licenses, as written by torch 2.5.
A module whose text defines get_inputs and get_init_inputs becomes a task: its text, followed by a
class Model that passes on the [positional, keyword] arguments of KernelBook's get_init_inputs. The
patched Triton code becomes a kernel, without a verdict: the dataset states none. Rows carry the
licenses of the repository that the module was taken from.
"""

from __future__ import annotations

import io
import itertools
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import store
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "kernelbook"
POLICY = "torch-inductor"
COLUMNS = pieces.name_columns(
    required="entry_point python_code triton_code",
    optional="repo_name module_name synthetic uuid licenses sha",
)
_ADAPTER = """

_{name} = {name}


class Model(_{name}):
    def __init__(self, positional=(), keyword=None):
        super().__init__(*positional, **(keyword or {{}}))
"""

_OWN_MODEL = "OwnModel"
"""What a class of a text is called in place of Model."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str = "unknown"
    license: str | None = None
    """SPDX identifier for rows that state no license of their own."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "python_code", "triton_code", "entry_point")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of each file in bundles."""
    files = pieces.open_parquets(path, "dataset_permissive.parquet of KernelBook", COLUMNS)
    yield from pieces.Import(lake, NAME, config, source="GPUMODE/KernelBook").read(
        files, lambda: partial(_add, config)
    )


def adapt_task(code: str, entry_point: str) -> str | None:
    """Return a module's text with a class Model, or None if its class has no name in Python."""
    if not entry_point.isidentifier():
        return None
    # A class of the text that is called Model itself looks its name up, in `super(Model, self)`.
    renamed = _rename_model(code)
    name = _OWN_MODEL if entry_point == "Model" else entry_point
    return renamed.rstrip() + _ADAPTER.format(name=name)


def _rename_model(code: str) -> str:
    """Return a text in which the name Model is another one, so that the adapter can have it.

    >>> _rename_model("from a import Model\\nx = Model(b.Model, Model=1)  # Model\\n")
    'from a import Model as OwnModel\\nx = OwnModel(b.Model, Model=1)  # Model\\n'
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (SyntaxError, tokenize.TokenError):
        return code  # no such task can be built
    tokens = [token for token in tokens if token.type not in (tokenize.NL, tokenize.COMMENT)]
    lines = code.splitlines(keepends=True)
    begins, before, statement, depth = True, "", "", 0
    edits: list[tuple[int, int, str]] = []
    for token, after in itertools.pairwise(tokens):
        if begins:
            statement = token.string
        depth += (token.string in tuple("([{")) - (token.string in tuple(")]}"))
        row, column = token.start
        is_attribute = before == "." or (before == "def" and column > len("def "))
        is_keyword = depth > 0 and after.string == "="
        if token.string == "Model" and not is_attribute and not is_keyword:
            is_imported = statement in ("from", "import") and before not in ("as", "from")
            edits.append((row - 1, column, f"Model as {_OWN_MODEL}" if is_imported else _OWN_MODEL))
        begins = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
        before = token.string
    for row, column, text in reversed(edits):
        line = lines[row]
        lines[row] = line[:column] + text + line[column + len("Model") :]
    return "".join(lines)


def _add(config: Config, rows: pieces.BundleRows, row: Fields) -> None:
    stated = row.values.get("licenses")
    if isinstance(stated, list):
        # All licenses of a row apply.
        named = sorted({str(one).strip() for one in cast("list[Any]", stated) if one})
        license = " AND ".join(named)
    else:
        license = row.text("licenses") if isinstance(stated, str) else None
    rows = rows.under(license or config.license)
    entry_point, code = row.require_text("entry_point"), row.code("python_code")
    repository, module = row.text("repo_name") or "unknown", row.text("module_name") or entry_point
    name = row.text("uuid") or f"{repository}/{module}"
    task_id = rows.add_suite_task(
        None if code is None else adapt_task(code, entry_point),
        suite=NAME,
        revision=config.source_revision,
        name=name,
        title=f"{module} of {repository}",
    )
    kernel_id = rows.add_code(row.code("triton_code"), entry_point=f"{entry_point}New")
    rows.add_attempt(
        [name, module, kernel_id or ""],
        policy=POLICY,
        policy_kind="script",
        task_id=task_id,
        problem=f"{repository}/{module}",
        kernel_id=kernel_id,
    )
