"""Programs of an OpenEvolve search: evolution_trace.jsonl and checkpoints.

Reads what openevolve 0.3.2 and 0.4.0 write: traces as .jsonl, .jsonl.gz or .json,
checkpoint_N/programs/ID.json, and best_program_info.json with the program beside it. Traces in HDF5
are not read. Name the output folder: by default a
trace holds no code, and the code comes from the newest checkpoint that has the program. A program
becomes a kernel and an attempt that continues its parent, with the model's prompt and answer. Its
metrics become claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "openevolve"
_TRACES = ("*.jsonl", "*.jsonl.gz", "*.json")
_BEST = "best_program_info.json"
_CHECKPOINT = re.compile(r"checkpoint_([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Config(pieces.ProgramOrigin):
    policy: AuthorOption = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, *_TRACES, "*/evolution_trace.*"):
        if _is_trace(file):
            return f"{file.name} with child_id and child_metrics"
    for above in ("", "*/", "*/*/", "*/*/*/") if path.is_dir() else ():
        for file in sources.list_files(path, f"{above}programs/*.json")[:1]:
            if sources.has_names(file, "parent_id", "iteration_found", "metrics"):
                return f"{file.relative_to(path)} with iteration_found"
    for file in sources.list_below(path, _BEST)[:1] if path.is_dir() else ():
        return f"{file.relative_to(path)}"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the steps of each trace, then the other programs of the checkpoints, in bundles."""
    root = sources.require_path(path, "the output folder of OpenEvolve, or a trace file")
    # The newest file of each program, by its id.
    checkpoints: list[tuple[int, Path]] = []
    for file in root.rglob("*.json"):
        if file.parent.name == "programs":
            match = _CHECKPOINT.fullmatch(file.parent.parent.name)
            checkpoints.append((0 if match is None else int(match[1]), file))
    programs = {file.stem: file for _, file in sorted(checkpoints)}
    # Of a trace in two forms, both.
    files = {file for pattern in _TRACES for file in root.rglob(pattern)}
    traces = sorted(one for one in files if one.parent.name != "programs" and _is_trace(one))
    traces = [root] if root.is_file() else traces
    best = [file for file in sorted(root.rglob(_BEST)) if file.parent.parent.name != "checkpoints"]
    if not programs and not traces and not best:
        raise ImportFailed(
            f"{root} holds no evolution trace and no checkpoint",
            "Set evolution_trace.enabled in OpenEvolve's configuration, or name openevolve_output.",
        )
    reading = pieces.Import(lake, NAME, config)
    folder = root if root.is_dir() else root.parent
    problem = config.problem or folder.resolve().name
    opened = [
        pieces.open_documents(
            None, [file], root, lambda one: pieces.parse_document(one, root).list("traces")
        )
        if file.suffix == ".json"
        else pieces.open_json_lines(file, root)
        for file in traces
    ]
    if programs:
        # The identity of a trace covers the programs that its code comes from.
        documents = pieces.open_documents("programs", list(programs.values()), root, lambda _: ())
        opened = [
            replace(one, digest=sources.combine(trace=one.digest, programs=documents.digest))
            for one in opened
        ]

        def read_programs() -> Iterator[Fields]:
            parents = {
                name: pieces.parse_document(file, root).text("parent_id")
                for name, file in programs.items()
            }
            for name in pieces.list_parents_first(parents):
                yield pieces.parse_document(programs[name], root)

        opened.append(replace(documents, open=read_programs))
    parse_best = partial(_parse_best, root=root, problem=config.problem)
    opened += [
        pieces.open_documents(None, [file], root, parse_best, more=_find_code(file))
        for file in best
        if pieces.parse_document(file, root).text("id") not in programs
    ]
    yield from reading.read(
        opened,
        lambda: partial(
            _add, pieces.ProgramRows(reading, problem, config.entry_point), programs, root
        ),
    )


def _find_code(info: Path) -> list[Path]:
    return [file for file in sorted(info.parent.glob("best_program.*")) if file.is_file()][:1]


def _parse_best(file: Path, root: Path, problem: str | None) -> Iterator[Fields]:
    folder = file.parent.parent if file.parent.name == "best" else file.parent
    codes = [sources.read_text(one, root) for one in _find_code(file)]
    values = pieces.parse_document(file, root).values
    added = {"code": codes[0] if codes else None, "problem": problem or folder.name}
    yield Fields(values={**values, **added}, where=str(file))


def _is_trace(file: Path) -> bool:
    if file.suffix == ".json":
        return sources.has_names(file, "traces", "child_id", "child_metrics")
    return {"child_id", "parent_id", "child_metrics"} <= sources.read_first_object(file).keys()


def _add(
    programs: pieces.ProgramRows,
    stored: dict[str, Path],
    root: Path,
    rows: pieces.BundleRows,
    record: Fields,
) -> None:
    """Add a program of the checkpoints, or the child of a step of a trace.

    The parent of a step comes before it, if it has not come yet.
    """
    if "child_id" not in record.values:
        _add_program(programs, rows, record, record)
        return

    def load(identity: str) -> dict[str, Any]:
        file = stored.get(identity)
        values = {} if file is None else pieces.parse_document(file, root).values
        return {name: value for name, value in values.items() if value not in (None, "", {})}

    step, parent = record, record.require_text("parent_id")
    if not programs.has(parent):
        first = {
            "id": parent,
            "code": step.values.get("parent_code"),
            "metrics": step.values.get("parent_metrics"),
            **load(parent),
        }
        _add_program(programs, rows, Fields(values=first, where=step.where), step)
    child = {name.removeprefix("child_"): value for name, value in step.values.items()}
    child |= {"id": step.require_text("child_id"), "prompts": {"": child.get("prompt") or {}}}
    if step.code("child_code") is None:
        values = load(child["id"])
        child |= {name: values[name] for name in ("code", "language") if name in values}
    program = Fields(values=child, where=step.where)
    _add_program(programs, rows, program, step, completion=step.prose("llm_response"))


def _add_program(
    programs: pieces.ProgramRows,
    rows: pieces.BundleRows,
    program: Fields,
    where: Fields,
    completion: str | None = None,
) -> None:
    identity, code = program.require_text("id"), program.code("code")
    prompts = program.inner("prompts")
    prompt = next((one for name in prompts.values if (one := prompts.inner(name)).values), None)
    messages: list[dict[str, str]] = []
    if prompt is not None:
        for role in ("system", "user"):
            if (text := prompt.prose(role)) is not None:
                messages.append({"role": role, "content": text})
        answers = prompt.values.get("responses")
        if completion is None and isinstance(answers, list) and answers:
            first = Fields(values={"answer": answers[0]}, where=prompt.where)
            completion = first.prose("answer")
    changes, metrics = program.prose("changes_description"), program.inner("metrics")
    # A step without code must not hide the code that a later import brings.
    place = ["program", identity] if code is not None else ["program", identity, "no code"]
    attempt = programs.add(
        rows,
        identity,
        place,
        kernel_id=programs.add_code(rows, code, program.text("language")),
        parent=program.text("parent_id"),
        problem=program.text("problem"),
        parse_error="the trace has no code" if code is None else None,
        prompt_id=rows.add_prompt(messages, programs.reading.task_id),
        completion=completion,
        design=None if changes == "empty" else changes,  # what OpenEvolve writes for none
        turn=program.whole("generation"),
        created_at=program.moment("timestamp"),
    )
    quote = f"program {identity} in {Path(where.where.partition(',')[0]).name}"
    programs.add_metrics(rows, attempt, metrics, quote)
