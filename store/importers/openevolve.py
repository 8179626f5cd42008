"""Programs of an OpenEvolve search: evolution_trace.jsonl and checkpoints.

Reads what openevolve 0.3.2 and 0.4.0 write: traces as .jsonl, .jsonl.gz or .json, and
checkpoint_N/programs/ID.json. Traces in HDF5 are not read. Name the output folder: by default a
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
from typing import TYPE_CHECKING, Any

from store.errors import ImportFailed
from store.foreign.fields import Fields
from store.importers.reading import detection, pieces, sources
from store.importers.reading.attempts import AttemptRows
from store.importers.reading.rows import BundleRows
from store.importers.reading.tasks import find_optional
from store.importers.searches.programs import ProgramRows, list_parents_first
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

NAME = "openevolve"
IMPORTER_VERSION = 1
_TRACES = ("*.jsonl", "*.jsonl.gz", "*.json")
_CHECKPOINT = re.compile(r"checkpoint_([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the openevolve importer."""

    task: str | None = None
    """Task of the search: its name, or the first 6 characters of its id."""
    problem: str | None = None
    """Name of the task if the lake does not have it (default: the folder's name)."""
    policy: str = NAME
    """Name of the policy that wrote the programs."""
    gpu: str | None = None
    """GPU of the figures."""
    entry_point: str = "ModelNew"
    """Class or function that the programs define."""
    source_revision: str | None = None
    """Revision of the search."""
    license: str | None = None
    """SPDX identifier under which the programs were released."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path has traces or checkpoints of OpenEvolve."""
    for file in detection.list_files(path, *_TRACES, "*/evolution_trace.*"):
        if _is_trace(file):
            return f"{file.name} with child_id and child_metrics"
    for above in ("", "*/", "*/*/", "*/*/*/") if path.is_dir() else ():
        for file in detection.list_files(path, f"{above}programs/*.json")[:1]:
            if detection.has_names(file, "parent_id", "iteration_found", "metrics"):
                return f"{file.relative_to(path)} with iteration_found"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield the steps of each trace, then the other programs of the checkpoints, in bundles.

    Raises ImportFailed if there is neither, or a file is malformed.
    """
    root = sources.require_path(path, "the output folder of OpenEvolve, or a trace file")
    programs = _find_programs(root) if root.is_dir() else {}
    traces = [root] if root.is_file() else _find_traces(root)
    if not programs and not traces:
        raise ImportFailed(
            f"{root} holds no evolution trace and no checkpoint",
            "Set evolution_trace.enabled in OpenEvolve's configuration, or name openevolve_output.",
        )
    task_id = find_optional(lake, config.task)
    folder = root if root.is_dir() else root.parent
    problem = config.problem or folder.resolve().name
    files = [_open_trace(file, root) for file in traces]
    if programs:
        documents = pieces.open_documents("programs", list(programs.values()), root, lambda _: ())
        files = [_cover(one, documents) for one in files]
        files.append(replace(documents, open=partial(_read_programs, programs, root)))
    yield from pieces.read_pieces(
        lake,
        files,
        importer=NAME,
        version=IMPORTER_VERSION,
        config=config,
        origin=BundleRows(
            source=NAME, source_revision=config.source_revision, license=config.license
        ),
        start=lambda: _Adder(config, task_id, problem, programs, root).add,
    )


def _is_trace(file: Path) -> bool:
    if file.suffix == ".json":
        return detection.has_names(file, "traces", "child_id", "child_metrics")
    return {"child_id", "parent_id", "child_metrics"} <= detection.read_first_object(file).keys()


def _find_traces(root: Path) -> list[Path]:
    """Return the traces below a folder; of one in two forms, both."""
    files = {file for pattern in _TRACES for file in root.rglob(pattern)}
    return sorted(one for one in files if one.parent.name != "programs" and _is_trace(one))


def _find_programs(root: Path) -> dict[str, Path]:
    """Return the newest file of each program by its id."""
    newest: dict[str, Path] = {}
    files = [file for file in root.rglob("*.json") if file.parent.name == "programs"]
    for file in sorted(files, key=lambda one: (_number(one), one)):
        newest[file.stem] = file
    return newest


def _number(file: Path) -> int:
    match = _CHECKPOINT.fullmatch(file.parent.parent.name)
    return 0 if match is None else int(match[1])


def _open_trace(file: Path, root: Path) -> pieces.SourceFile:
    if file.suffix != ".json":
        return pieces.open_json_lines(file, root)

    def parse(one: Path) -> Iterator[Fields]:
        yield from pieces.parse_document(one, root).list("traces")

    return pieces.open_documents(pieces.name_inside(file, root), [file], root, parse)


def _cover(trace: pieces.SourceFile, programs: pieces.SourceFile) -> pieces.SourceFile:
    """Return a trace whose identity covers the programs that its code comes from."""
    parts = [("trace", trace.digest), ("programs", programs.digest)]
    return replace(trace, digest=sources.digest((name, one.encode()) for name, one in parts))


def _read_programs(programs: dict[str, Path], root: Path) -> Iterator[Fields]:
    parents = {
        name: pieces.parse_document(file, root).text("parent_id") for name, file in programs.items()
    }
    for name in list_parents_first(parents):
        yield pieces.parse_document(programs[name], root)


class _Adder:
    """Adds the steps of a trace, or the programs of the checkpoints."""

    def __init__(
        self,
        config: Config,
        task_id: str | None,
        problem: str,
        files: dict[str, Path],
        root: Path,
    ) -> None:
        self._files = files
        self._root = root
        self._programs = ProgramRows(
            importer=NAME,
            task_id=task_id,
            problem=problem,
            policy=config.policy,
            gpu=config.gpu,
            entry_point=config.entry_point,
        )

    def add(self, gathered: BundleRows, run_id: str, record: Fields) -> None:
        """Add a step of a trace or a program."""
        rows = self._programs.begin(gathered, run_id)
        if "child_id" in record.values:
            self._add_step(rows, record)
        else:
            self._add_program(rows, record, record)

    def _add_step(self, rows: AttemptRows, step: Fields) -> None:
        """Add the child of a step, and before it the parent if it has not come before."""
        parent = step.require_text("parent_id")
        if not self._programs.has(parent):
            stored = self._load(parent) or Fields(values={}, where=step.where)
            first = {
                "id": parent,
                "code": step.values.get("parent_code"),
                "metrics": step.values.get("parent_metrics"),
                **_without_empty(stored.values),
            }
            self._add_program(rows, Fields(values=first, where=step.where), step)
        child: dict[str, Any] = {
            "id": step.require_text("child_id"),
            "parent_id": parent,
            "code": step.values.get("child_code"),
            "metrics": step.values.get("child_metrics"),
            "generation": step.values.get("generation"),
            "timestamp": step.values.get("timestamp"),
            "changes_description": step.values.get("child_changes_description"),
            "prompts": {"": step.values.get("prompt") or {}},
        }
        if step.code("child_code") is None:
            stored = self._load(child["id"])
            if stored is not None:
                child |= {name: stored.values.get(name) for name in ("code", "language")}
        program = Fields(values=child, where=step.where)
        self._add_program(rows, program, step, completion=step.prose("llm_response"))

    def _add_program(
        self, rows: AttemptRows, program: Fields, where: Fields, completion: str | None = None
    ) -> None:
        identity, code = program.require_text("id"), program.code("code")
        prompt = next(iter(_list_prompts(program)), None)
        messages = [
            {"role": role, "content": text}
            for role in ("system", "user")
            if prompt is not None and (text := prompt.prose(role)) is not None
        ]
        if completion is None and prompt is not None:
            completion = _first_answer(prompt)
        # A step without code must not hide the code that a later import brings.
        place = ["program", identity] if code is not None else ["program", identity, "no code"]
        attempt = self._programs.add(
            rows,
            identity,
            place,
            kernel_id=self._programs.add_kernel(rows, code, program.text("language")),
            parent=program.text("parent_id"),
            parse_error="the trace has no code" if code is None else None,
            prompt_id=rows.add_prompt(messages, self._programs.task_id),
            completion=completion,
            design=_read_changes(program),
            turn=program.whole("generation"),
            created_at=program.moment("timestamp"),
        )
        quote = f"program {identity} in {Path(where.where.partition(',')[0]).name}"
        self._programs.add_metrics(rows, attempt, program.inner("metrics"), quote)

    def _load(self, identity: str) -> Fields | None:
        """Return a program of the checkpoints, or None."""
        file = self._files.get(identity)
        return None if file is None else pieces.parse_document(file, self._root)


def _list_prompts(program: Fields) -> list[Fields]:
    prompts = program.inner("prompts")
    return [one for name in prompts.values if (one := prompts.inner(name)).values]


def _first_answer(prompt: Fields) -> str | None:
    answers = prompt.values.get("responses")
    if not isinstance(answers, list) or not answers:
        return None
    return Fields(values={"answer": answers[0]}, where=prompt.where).prose("answer")


def _read_changes(program: Fields) -> str | None:
    """Return the description of a program's changes; OpenEvolve writes `empty` for none."""
    changes = program.prose("changes_description")
    return None if changes == "empty" else changes


def _without_empty(values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", {})}
