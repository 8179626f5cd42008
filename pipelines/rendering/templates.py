"""Renders Jinja2 templates, which are strict about missing values and identified by a hash."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import languages
from store.errors import UnknownName

if TYPE_CHECKING:
    import jinja2

    from pipelines.contract import Kernel, Task

OURS = Path(__file__).parent.parent / "templates"
OWN = Path("flywheel/pipelines/templates")


def render(template: str, **values: Any) -> str:
    """Return a template's text with values put in.

    Values are data: template syntax inside a kernel's text stays text. A name that the template
    uses and `values` lacks is an error. A template of the same name in
    ./flywheel/pipelines/templates comes before ours.
    """
    return _template(template).render(values)


@functools.cache
def template_hash(template: str) -> str:
    """Return the sha256 over a template file and all that it includes or imports."""
    from jinja2 import meta

    environment = _environment()
    waiting, texts = [template], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        texts[name] = _source(name)
        found = meta.find_referenced_templates(environment.parse(texts[name]))
        waiting += [one for one in found if one is not None]
    return hashlib.sha256(json.dumps(sorted(texts.items())).encode()).hexdigest()


def fence(text: str, language: str = "") -> str:
    r"""Return text as a Markdown code block that nothing inside the text can close.

    The fence is longer than any run of backticks in the text.

    >>> print(fence("x = '```'\n", "python"))
    ````python
    x = '```'
    ````
    """
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"


def render_files(kernel: Kernel) -> str:
    """Return a kernel's files as code blocks; each is named where there is more than one."""
    if not kernel.other_files:
        return fence(kernel.code, languages.find_fence(kernel.path))
    parts = [(kernel.path, kernel.code), *kernel.other_files]
    blocks: list[str] = []
    for path, code in parts:
        # A path is foreign text too; as a code span of one line it is harmless.
        ticks = "`" * (max(map(len, re.findall("`+", path)), default=0) + 1)
        block = fence(code, languages.find_fence(path))
        blocks.append(f"File {ticks}{_line(path)}{ticks}:\n\n{block}")
    return "\n\n".join(blocks)


@functools.lru_cache(maxsize=4096)
def render_task(task: Task) -> str:
    """Return the block that states a task; rendered once per task."""
    return render("task.j2", task=task)


def describe_sizes(axes: str | None) -> str:
    """Return the sizes that a workload sets, as words; empty for a default workload.

    >>> describe_sizes('{"ROWS": 64, "COLS": 128}'), describe_sizes("{}"), describe_sizes(None)
    ('COLS = 128, ROWS = 64', '', '')
    """
    values = json.loads(axes or "{}")
    return ", ".join(f"{_line(name)} = {_line(str(values[name]))}" for name in sorted(values))


def _line(text: str) -> str:
    return " ".join(text.split())


@functools.cache
def _template(name: str) -> jinja2.Template:
    return _environment().from_string(_source(name))


@functools.cache
def _environment() -> jinja2.Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([OWN, OURS]),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    environment.filters["fenced"] = fence
    environment.filters["files"] = render_files
    environment.filters["one_line"] = _line
    return environment


def _source(name: str) -> str:
    from jinja2 import TemplateNotFound

    environment = _environment()
    assert environment.loader is not None
    try:
        return environment.loader.get_source(environment, name)[0]
    except TemplateNotFound as error:
        raise UnknownName.among("template", name, environment.list_templates()) from error
