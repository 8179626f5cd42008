"""NVIDIA's SOL-ExecBench: problems, solutions, and traces of its evaluator.

Reads the formats of NVIDIA/SOL-ExecBench at 8d2237d: folders with definition.json and
workload.jsonl, as its download script writes them, or the Parquet files of nvidia/SOL-ExecBench.
Below the path it also reads solutions (solution*.json) and traces (trace*.json of run_dataset.py,
trace*.jsonl of sol-execbench -o), which belong to the problem that they name. A definition becomes
a task in KernelBench's form, and a workload sets its axes. Tolerances are not stored, because they
are rules of SOL-ExecBench's evaluator. Statuses become evaluations; latencies and speedups become
claims. The license of the problems permits evaluation only: all of them are in the test split, and
`store publish` refuses them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import store
from store.errors import ImportFailed
from store.foreign import left_out, text_files
from store.foreign.text_files import NOTHING_STORED, Fields
from store.importers.reading import flashinfer, pieces, sources

log = logging.getLogger(__name__)

NAME = "sol-execbench"
EVALUATION_LICENSE = "LicenseRef-NVIDIA-Evaluation-Dataset"
COLUMNS = pieces.name_columns(
    required="name axes inputs reference workloads", optional="outputs custom_inputs_entrypoint"
)
_LEVEL = re.compile(r"L([0-9])(?:-.*)?")
"""Name of a folder or file with the problems of one level."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    evaluator_version: int = 0
    """Version of sol-execbench to record; 0 means that it is unknown."""
    source_revision: str = "unknown"
    license: str | None = EVALUATION_LICENSE


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, "definition.json"):
        if path.is_dir() and file.with_name("workload.jsonl").is_file():
            return f"{file.relative_to(path)} with workload.jsonl"
    return sources.find_columns(path, "axes", "reference", "workloads")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the problems in bundles, each with its workloads, solutions and verdicts."""
    root = sources.require_path(path, "problems of SOL-ExecBench (folders or Parquet files)")
    problems = list(_open_folders(root)) if root.is_dir() else []
    if not problems:
        problems = [
            replace(pieces.open_parquet(file, root, COLUMNS), open=partial(_read_rows, file))
            for file in sources.find_parquet(root, "")[1]
        ]
    yield from pieces.Import(lake, NAME, config, source="nvidia/SOL-ExecBench").read(
        problems, lambda: partial(_add, config.evaluator_version)
    )


def _open_folders(root: Path) -> Iterator[pieces.SourceFile]:
    others: dict[str, list[Path]] = {}
    for file in sorted({*root.rglob("solution*.json"), *root.rglob("trace*.json*")}):
        for name in sorted(
            {one.require_text("definition") for one in sources.read_objects(file, root)}
        ):
            others.setdefault(name, []).append(file)
    for file in sorted(root.rglob("definition.json")):
        name = pieces.parse_document(file, root).require_text("name")
        workloads = file.with_name("workload.jsonl")
        if not workloads.is_file():
            raise ImportFailed(f"{file.parent} has no {workloads.name}", NOTHING_STORED)
        more = others.get(name, [])
        parse = partial(_parse, root=root, more=more)
        yield pieces.open_documents(None, [file], root, parse, more=[workloads, *more])


def _parse(file: Path, root: Path, more: list[Path]) -> Iterator[Fields]:
    definition = pieces.parse_document(file, root)
    name = definition.require_text("name")
    objects = [one for other in more for one in sources.read_objects(other, root)]
    mine = [one for one in objects if one.text("definition") == name]
    lines = list(sources.read_objects(file.with_name("workload.jsonl"), root))
    values = {
        "definition": definition.values,
        "level": _read_level(file.parent.parent.name),
        "workloads": lines,
        "solutions": [one for one in mine if "sources" in one.values],
        "traces": [one for one in mine if "sources" not in one.values],
    }
    size = definition.size + sum(one.size for one in (*lines, *mine))
    yield Fields(values=values, where=str(file), size=size)


def _read_rows(file: Path) -> Iterator[Fields]:
    number = 0
    for rows in sources.read_batches(file, COLUMNS, 16):
        for row in rows:
            where = f"{file.name}, row {number}"
            number += 1
            with left_out.errors():
                texts = ("axes", "inputs", "outputs", "workloads")
                parsed = {
                    name: text_files.parse_json(row[name], f"{where}, {name}")
                    for name in texts
                    if isinstance(row[name], str)
                }
                fields = Fields(values={**row, **parsed}, where=where)
                values = {
                    "definition": fields.values,
                    "level": _read_level(file.stem) or _read_level(file.parent.name),
                    "workloads": fields.list("workloads"),
                }
                yield Fields(values=values, where=where)


def _add(version: int, rows: pieces.BundleRows, problem: Fields) -> None:
    definition = flashinfer.parse_definition(problem.inner("definition"))
    workloads = [flashinfer.parse_workload(one) for one in problem.values["workloads"]]
    drawn = {
        name
        for workload in workloads
        for name, about in workload.inputs.items()
        if about.get("type") == "custom"
    }
    if drawn and definition.generator is None:
        raise ImportFailed(f"{problem.where} has custom inputs and no custom_inputs_entrypoint")
    definition = replace(definition, drawn=frozenset(drawn))
    of_trace = flashinfer.TraceRows(rows, definition, NAME, version, problem.whole("level"))
    for workload in workloads:
        of_trace.add_workload(workload)
    known: set[str | None] = set()
    for one in problem.values.get("solutions") or ():
        solution = flashinfer.parse_solution(one)
        of_trace.add_solution(solution)
        known.add(solution.name)
    unknown = 0
    for one in problem.values.get("traces") or ():
        trace = flashinfer.parse_trace(one)
        if trace.solution in known:
            of_trace.add_verdict(trace)
        else:
            unknown += trace.solution is not None
    if unknown and rows.run_id:
        log.warning("%s: %d traces are of solutions that are not there", definition.name, unknown)


def _read_level(name: str) -> int | None:
    match = _LEVEL.fullmatch(name)
    return None if match is None else int(match[1])
