"""A flashinfer-trace dataset: definitions, solutions of several files, workloads and traces.

A definition becomes a task: its reference code, followed by a Model and input generators in
KernelBench's format that this importer writes. Axes that vary are names of the task's module, which
each workload sets. Inputs that a dataset keeps in files (safetensors) are not generated; such
workloads say so. Solutions become kernels, verdicts of traces become evaluations of
flashinfer-bench, and latencies and speedups become claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import store
from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.foreign import text_files
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import flashinfer, pieces, sources

NAME = "flashinfer-trace"
EVALUATOR = "flashinfer-bench"


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str | None = None
    """Commit of the dataset (default: the checkout's HEAD, else "unknown")."""
    license: str | None = "Apache-2.0"
    evaluator_version: int = 0
    """Version of flashinfer-bench to record; 0 means that it is unknown."""


@dataclass(kw_only=True)
class _Parts:
    """A definition with what belongs to it."""

    definition: flashinfer.Definition
    solutions: list[flashinfer.Solution] = field(default_factory=list[flashinfer.Solution])
    traces: list[flashinfer.Trace] = field(default_factory=list[flashinfer.Trace])
    """Those of workloads/ first, then those with verdicts."""
    hashes: list[str] = field(default_factory=list[str])
    """Hash of each text."""


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "definitions/*.json", "definitions/*/*.json"):
        if path.is_dir() and sources.has_names(file, "op_type", "axes", "reference"):
            return f"{file.relative_to(path)} with op_type, axes and reference"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield a bundle per definition, with its workloads, solutions and traces."""
    root = sources.require_path(path, "a flashinfer-trace dataset (definitions/, solutions/ …)")
    dataset: dict[str, _Parts] = {}
    for text, fields in _read_objects(root, "definitions"):
        definition = flashinfer.parse_definition(fields)
        if definition.name in dataset:
            raise ImportFailed(f"{fields.where}: {quote_name(definition.name)} is defined twice")
        dataset[definition.name] = _Parts(definition=definition, hashes=[content_id(text)])
    if not dataset:
        raise ImportFailed(
            f"{root} holds no definitions/**/*.json", "Name the folder that has definitions/ in it."
        )
    for text, fields in _read_objects(root, "solutions"):
        parts = dataset[flashinfer.require_known(fields, dataset.keys())]
        parts.solutions.append(flashinfer.parse_solution(fields))
        parts.hashes.append(content_id(text))
    for folder in ("workloads", "traces"):
        for file in sorted((root / folder).rglob("*.jsonl")):
            for fields, line in flashinfer.read_lines(sources.read_text(file, root), file):
                trace = flashinfer.parse_trace(fields, dataset.keys())
                dataset[trace.definition].traces.append(trace)
                dataset[trace.definition].hashes.append(content_id(line))
    splits = pieces.decide_splits(NAME, [one.definition.op_type for one in dataset.values()], lake)
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
                of_trace.add_workload(trace.workload)
            for solution in parts.solutions:
                of_trace.add_solution(solution)
            for trace in parts.traces:
                of_trace.add_verdict(trace)
            rows.add_splits(splits)
        verdicts = sum(one.solution is not None for one in parts.traces)
        counts = f"{len(parts.solutions)} solutions, {verdicts} verdicts"
        yield reading.finish(rows, f"{NAME} {name}: {counts}", name)


def _read_objects(root: Path, folder: str) -> Iterator[tuple[str, Fields]]:
    for file in sorted((root / folder).rglob("*.json")):
        text = sources.read_text(file, root)
        yield text, text_files.parse_object(text, str(file))
