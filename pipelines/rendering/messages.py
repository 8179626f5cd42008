"""Templates, and what they render: questions, prompts that show scored kernels, and answers.

Templates are strict about missing values and identified by a hash.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.contract import Kernel, Message, Row, Task, describe_baseline
from store import languages
from store.code.constants import read_constants
from store.errors import DatasetError, FlywheelError, UnknownName
from store.schema.clocks import describe_clock

if TYPE_CHECKING:
    import jinja2


OURS = Path(__file__).parent.parent / "templates"
OWN = Path("flywheel/pipelines/templates")


def render(template: str, **values: Any) -> str:
    """Return a template's text with values put in.

    Values are data: template syntax inside a kernel's text stays text. A name that the template
    uses and `values` lacks is an error. A template of the same name in
    ./flywheel/pipelines/templates comes before ours.
    """
    try:
        return _template(template).render(values)
    except FlywheelError:
        raise
    except Exception as error:
        raise _name_place(template, error) from error


def _name_place(template: str, error: Exception) -> DatasetError:
    """Return an error of a template with its name, and the line that jinja knows."""
    name, line = getattr(error, "name", None) or template, getattr(error, "lineno", None)
    if line is None:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.endswith(".j2"):
                name, line = Path(frame.filename).name, frame.lineno
    place = name if line is None else f"{name}, line {line}"
    return DatasetError(
        f"template {place}: {type(error).__name__}: {error}",
        "Correct the template, or the values that render() gives it.",
    )


@functools.cache
def template_hash(template: str) -> str:
    """Return the sha256 over a template file and all that it includes or imports."""
    from jinja2 import TemplateSyntaxError, meta

    environment = _environment()
    waiting, texts = [template], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in texts:
            continue
        texts[name] = _source(name)
        try:
            found = meta.find_referenced_templates(environment.parse(texts[name], name))
        except TemplateSyntaxError as error:
            raise _name_place(name, error) from error
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
    _source(name)
    return _environment().get_template(name)


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
    except UnicodeDecodeError as error:
        raise _name_place(name, error) from error


TEMPLATE = "one_shot.j2"


def render_question(row: Row, template: str = TEMPLATE, **values: Any) -> list[Message]:
    """Return the prompt of a row without exemplars."""
    text = render(
        template,
        task_block=render_task(row.task),
        device_kind=row.columns["_device_kind"],
        workload="",
        shown=[],
        **values,
    )
    return [{"role": "user", "content": text}]


def render_answer(row: Row, place: int = 0) -> list[Message]:
    """Return a kernel of a row as the assistant's turn, with its author's words if it has some."""
    text = render("answer.j2", kernel=row.kernels[place], said=row.columns.get("_words"))
    return [{"role": "assistant", "content": text}]


_MOST_CHANGES = 6
"""Maximum number of constants that a text names; more say nothing about what mattered."""


def render_contrast(row: Row) -> list[Message]:
    """Return the prompt of a task with the kernels of a row and their scores."""
    columns, clock = row.columns, row.columns.get("_clock")
    shown = [
        {
            "score": f"{score:.2f}x" + (f" on {place}" if place != columns["device"] else ""),
            "shapes": shapes,
            "text": render_files(kernel),
            "implied": implied,
        }
        for kernel, score, place, implied, shapes in zip(
            row.kernels,
            columns["exemplar_scores"],
            columns.get("exemplar_devices", ()),
            columns.get("exemplar_implied", ()),
            columns.get("_exemplar_shapes") or [None] * len(row.kernels),
            strict=True,
        )
    ]
    if columns["reference_shown"]:
        text = "The reference itself, as it stands under Task."
        shown.append({"score": "1.00x", "shapes": None, "text": text, "implied": False})
    text = render(
        "contrastive.j2",
        task_block=render_task(row.task),
        workload=describe_sizes(columns["_axes"]),
        shown=shown,
        at_shapes=any(one["shapes"] for one in shown),
        other_gpus=any(place != columns["device"] for place in columns.get("exemplar_devices", ())),
        evidence=columns["evidence"],
        device=columns["device"],
        device_kind=columns["_device_kind"],
        baseline_words=describe_baseline(columns["baseline"]),
        clock_words=describe_clock(clock) if clock else None,
        checks=_describe_checks(columns.get("exemplar_checks") or []),
    )
    return [{"role": "user", "content": text}]


def _describe_checks(checks: list[int | None]) -> str:
    """Return how many checks all measured kernels of a prompt passed, as words.

    >>> _describe_checks([35, 35]), _describe_checks([35, 20]), _describe_checks([35, None])
    ('35 checks', 'at least 20 checks', 'the checks of an evaluator')
    """
    known = [count for count in checks if count]
    if not known or len(known) < len(checks):
        return "the checks of an evaluator"
    return ("at least " if min(known) < max(known) else "") + f"{min(known)} checks"


def render_improvement(row: Row) -> dict[str, list[Message]]:
    """Return prompt and completion of an improvement (`select_improvements`).

    The last kernel of the row is the answer; those before it are shown. What the answer says about
    them comes from the facts of the store and from the text of the kernels.
    """
    shown = row.kernels[:-1]
    unimplied = [False] * len(shown)
    columns: dict[str, Any] = row.columns | {
        "reference_shown": False,
        "exemplar_implied": unimplied,
    }
    scores: list[float] = columns["exemplar_scores"]
    facts: list[dict[str, Any]] = []
    for known, kernel in zip(columns["_facts"], row.kernels, strict=True):
        texts = [kernel.code, *(text for _, text in kernel.other_files)]
        facts.append(known | {"constants": read_constants("\n".join(texts))})
    # Equal scores as shown: the first of them is named.
    fastest = max(range(len(shown)), key=lambda place: (scores[place], -place))
    before, after = facts[fastest], facts[-1]
    changes: list[str] = []
    if before["language"] != after["language"]:
        changes.append(f"Write it in {after['language']} instead of {before['language']}.")
    added = [one for one in after["techniques"] if one not in before["techniques"]]
    removed = [one for one in before["techniques"] if one not in after["techniques"]]
    if added:
        changes.append(f"Add {_join(added)}.")
    if removed:
        changes.append(f"Leave out {_join(removed)}.")
    old, new = before["constants"], after["constants"]
    values = [
        f"`{name}` = {value}" + (f" instead of {old[name]}" if name in old else "")
        for name, value in new.items()
        if old.get(name) != value
    ]
    if 0 < len(values) <= _MOST_CHANGES:
        changes.append(f"Set {', '.join(values)}.")
    text = render(
        "improvement.j2",
        part="answer",
        shown=facts[:-1],
        answer=facts[-1],
        fastest=fastest,
        changes=changes,
        gain=columns["gain"],
        score=columns["score"],
        kernel=row.kernels[-1],
    )
    return {
        "prompt": render_contrast(replace(row, kernels=shown, columns=columns)),
        "completion": [{"role": "assistant", "content": text}],
    }


def _join(techniques: list[str]) -> str:
    return ", ".join(one.replace("_", " ") for one in techniques)
