"""A flashinfer-trace dataset: definitions, solutions of several files, workloads and traces.

A definition becomes a task: its reference code, followed by a Model and input generators in
KernelBench's format that this importer writes. Axes that vary are names of the task's module, which
each workload sets. Inputs that a dataset keeps in files (safetensors) are not generated; such
workloads say so. Solutions become kernels, verdicts of traces become evaluations of
flashinfer-bench, and latencies and speedups become claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store.importers.flashinfer import files
from store.importers.flashinfer.rows import NAME, SUITE, TraceRows
from store.importers.reading import detection, sources
from store.importers.reading.rows import BundleRows, decide_splits
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

IMPORTER_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the flashinfer-trace importer."""

    source_revision: str | None = None
    """Commit of the dataset (default: the checkout's HEAD, else "unknown")."""
    license: str | None = "Apache-2.0"
    """SPDX identifier of the dataset's license."""
    evaluator_version: int = 0
    """Version of flashinfer-bench to record; 0 means that it is unknown."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path is a flashinfer-trace dataset."""
    for file in detection.list_files(path, "definitions/*.json", "definitions/*/*.json"):
        if path.is_dir() and detection.has_names(file, "op_type", "axes", "reference"):
            return f"{file.relative_to(path)} with op_type, axes and reference"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield a bundle per definition, with its workloads, solutions and traces.

    Raises ImportFailed if the folder has no definition, or a file is malformed; the message names
    the file and the line.
    """
    root = sources.require_path(path, "a flashinfer-trace dataset (definitions/, solutions/ …)")
    dataset = files.read(root)
    revision = config.source_revision or sources.git_head(root) or "unknown"
    families = {one.name: one.op_type for one in dataset.definitions}
    splits = decide_splits(SUITE, families.values(), lake)
    for definition in dataset.definitions:
        content = f"{definition.name} {dataset.digest(definition.name)}"
        identity = sources.bundle_id(NAME, IMPORTER_VERSION, content, config)
        solutions = dataset.solutions.get(definition.name, [])
        traces = dataset.traces.get(definition.name, [])
        message = (
            f"{NAME} {definition.name}: {len(solutions)} solutions, "
            f"{sum(one.solution is not None for one in traces)} verdicts"
        )
        if sources.is_stored(lake, identity):
            yield Bundle(bundle_id=identity, message=message)
            continue
        gathered = BundleRows(
            source="flashinfer-trace", source_revision=revision, license=config.license
        )
        rows = TraceRows(gathered, identity, config.evaluator_version, definition)
        for trace in traces:
            rows.add_workload(trace.workload)
        for solution in solutions:
            rows.add_solution(solution)
        for trace in traces:
            rows.add_verdict(trace)
        gathered.add_splits(splits)
        gathered.leave_out_stored(lake)
        yield gathered.make_bundle(
            identity, message, importer=NAME, config=config, what=definition.name
        )
