"""Text of questions, of prompts that show scored kernels, and of stored kernels as answers."""

from dataclasses import replace
from typing import Any

from pipelines.contract import Message, Row, describe_baseline
from pipelines.rendering.templates import describe_sizes, render, render_files, render_task
from store.code.constants import read_constants
from store.schema.clocks import describe_clock

TEMPLATE = "one_shot.j2"


def render_question(row: Row) -> list[Message]:
    """Return the one-shot prompt of a row."""
    text = render(
        TEMPLATE, task_block=render_task(row.task), device_kind=row.columns["_device_kind"]
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
