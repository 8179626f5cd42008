"""A flashinfer-trace dataset: definitions, solutions of several files, workloads and traces.

A definition becomes a task: its reference code, followed by a Model and input generators in
KernelBench's format that this importer writes. Axes that vary are names of the task's module, which
each workload sets. Inputs that a dataset keeps in files (safetensors) are not generated; such
workloads say so. A solution of a definition that the dataset lacks is an attempt at a problem of
this name. Solutions become kernels, verdicts of traces become evaluations of
flashinfer-bench, and latencies and speedups become claims.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import store
from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.foreign import left_out
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import flashinfer, pieces, sources

NAME = "flashinfer-trace"
EVALUATOR = "flashinfer-bench"
_FOLDER = "definitions"


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str | None = None
    """Commit of the dataset (default: the checkout's HEAD, else "unknown")."""
    license: str | None = "Apache-2.0"
    evaluator_version: int = 0
    """Version of flashinfer-bench to record; 0 means that it is unknown."""


@dataclass(kw_only=True)
class _Parts:
    """A definition, or only its name, with what belongs to it."""

    definition: flashinfer.Definition | str
    solutions: list[flashinfer.Solution] = field(default_factory=list[flashinfer.Solution])
    traces: list[flashinfer.Trace] = field(default_factory=list[flashinfer.Trace])
    """Those of workloads/ first, then those with verdicts."""
    hashes: list[str] = field(default_factory=list[str])
    """Hash of each text."""


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, "*.json"):
        if (
            path.is_dir()
            and _FOLDER in file.relative_to(path).parts
            and sources.has_names(file, "op_type", "axes", "reference")
        ):
            return f"{file.relative_to(path)} with op_type, axes and reference"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield a bundle per definition, with its workloads, solutions and traces."""
    root = sources.require_path(path, "a flashinfer-trace dataset (definitions/, solutions/ …)")
    dataset: dict[str, _Parts] = {}
    others: list[Path] = []
    for file in sorted(root.rglob("*.json*")):
        if _FOLDER not in file.relative_to(root).parts:
            others.append(file)
            continue
        for fields in _read_objects(file, root):
            with left_out.errors():
                definition = flashinfer.parse_definition(fields)
                if definition.name in dataset:
                    name = quote_name(definition.name)
                    raise ImportFailed(f"{fields.where}: {name} is defined twice")
                dataset[definition.name] = _Parts(definition=definition, hashes=[_hash(fields)])
                left_out.get_record().kept += 1
    if not dataset and not left_out.get_record().rows:
        raise ImportFailed(
            f"{root} holds no definitions/**/*.json", "Name the folder that has definitions/ in it."
        )
    # Workloads come before the traces that refer to them.
    for file in sorted(others, key=lambda one: ("workloads" not in one.parts, one)):
        is_solution = sources.has_names(file, "definition", "sources")
        if not is_solution and not sources.has_names(file, "definition", "workload"):
            continue
        for fields in _read_objects(file, root):
            with left_out.errors():
                part = flashinfer.parse_solution(fields) if is_solution else None
                trace = None if is_solution else flashinfer.parse_trace(fields)
                name = fields.require_text("definition")
                parts = dataset.setdefault(name, _Parts(definition=name))
                parts.solutions += [] if part is None else [part]
                parts.traces += [] if trace is None else [trace]
                parts.hashes.append(_hash(fields))
                if is_solution or not isinstance(parts.definition, str):
                    left_out.get_record().kept += 1
    for name, parts in [*dataset.items()]:
        for trace in parts.traces if isinstance(parts.definition, str) else ():
            if parts.solutions:
                left_out.get_record().kept += 1
            else:
                dataset.pop(name, None)
                left_out.get_record().refuse(
                    ImportFailed(f"{trace.where}: there is no definition {name!a:.80}")
                )
    families = [
        one.definition.op_type for one in dataset.values() if not isinstance(one.definition, str)
    ]
    splits = pieces.decide_splits(NAME, families, lake)
    reading = pieces.Import(
        *(lake, NAME, config),
        source_revision=config.source_revision or sources.git_head(root) or "unknown",
    )
    for name, parts in dataset.items():
        rows = reading.start(f"{name} {content_id(*parts.hashes)}")
        if rows.is_new:
            of_trace = flashinfer.TraceRows(
                rows, parts.definition, EVALUATOR, config.evaluator_version
            )
            for trace in parts.traces:
                with left_out.errors():
                    of_trace.add_workload(trace.workload)
            for solution in parts.solutions:
                with left_out.errors():
                    of_trace.add_solution(solution)
            for trace in parts.traces:
                with left_out.errors():
                    of_trace.add_verdict(trace)
            rows.add_splits(splits)
        verdicts = sum(one.solution is not None for one in parts.traces)
        counts = f"{len(parts.solutions)} solutions, {verdicts} verdicts"
        yield reading.finish(rows, f"{NAME} {name}: {counts}", name)


def _read_objects(file: Path, root: Path) -> Iterator[Fields]:
    with left_out.errors():
        yield from sources.read_objects(file, root)


def _hash(fields: Fields) -> str:
    return content_id(json.dumps(fields.values))
