"""Solutions of a K-Search search: solution_db.jsonl and the world model beside it.

Reads what K-Search at 0a372ee writes to .ksearch/TASK/world_model/. The search stores the best
solution of each cycle. A solution becomes a kernel and an attempt; world_model.json states the
solution that it continues and the action that led to it. A solution in CUDA has the files kernel.h,
kernel.cu and main.cpp. The status of a solution, its latency, its speedup over the reference and
its metrics become claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import ImportFailed
from store.foreign.fields import Fields
from store.importers.reading import detection, pieces, sources
from store.importers.reading.attempts import AttemptRows
from store.importers.reading.rows import BundleRows
from store.importers.reading.tasks import find_optional
from store.importers.searches.programs import ProgramRows
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

NAME = "k-search"
IMPORTER_VERSION = 1
SOLUTIONS, WORLD_MODEL = "solution_db.jsonl", "world_model.json"
_ABOVE = ("", "*/", "*/*/", "*/*/*/")
_UNJUDGED = ("", "seeded", "unknown")
_CUDA_FILES = {
    "kernel.h": re.compile(r'<header_file name="kernel\.h">(.*?)</header_file>', re.DOTALL),
    "kernel.cu": re.compile(r'<cuda_file name="kernel\.cu">(.*?)</cuda_file>', re.DOTALL),
    "main.cpp": re.compile(r'<cpp_file name="main\.cpp">(.*?)</cpp_file>', re.DOTALL),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the k-search importer."""

    task: str | None = None
    """Task of the search: its name, or the first 6 characters of its id."""
    policy: str = NAME
    """Name of the policy that wrote the solutions."""
    gpu: str | None = None
    """GPU of the figures."""
    entry_point: str = "run"
    """Function that the solutions define."""
    source_revision: str | None = None
    """Revision of the search."""
    license: str | None = None
    """SPDX identifier under which the solutions were released."""


@dataclass(kw_only=True)
class _Node:
    """What the world model states about a solution."""

    parent: str | None = None
    """Solution that it continues."""
    action: str | None = None


def recognize(path: Path) -> str | None:
    """Return what shows that a path has solutions of K-Search."""
    for file in detection.list_files(path, *(f"{above}{SOLUTIONS}" for above in _ABOVE)):
        first = detection.read_first_object(file)
        if {"solution_id", "definition", "eval_result"} <= first.keys():
            return f"{file.name} with solution_id and eval_result"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield the solutions of each search in bundles.

    Raises ImportFailed if there are no solutions, or a file is malformed.
    """
    root = sources.require_path(path, f"{SOLUTIONS} of K-Search, or a folder with it")
    files = [root] if root.is_file() else sorted(root.rglob(SOLUTIONS))
    if not files:
        raise ImportFailed(f"{root} holds no {SOLUTIONS}", "Name the artifacts folder (.ksearch).")
    task_id = find_optional(lake, config.task)
    for file in files:
        yield from pieces.read_pieces(
            lake,
            [_open(file, root)],
            importer=NAME,
            version=IMPORTER_VERSION,
            config=config,
            origin=BundleRows(
                source=NAME, source_revision=config.source_revision, license=config.license
            ),
            start=partial(_start, config, task_id, _read_world_model(file.with_name(WORLD_MODEL))),
        )


def _open(file: Path, root: Path) -> pieces.SourceFile:
    """Return the solutions; their identity covers the world model."""
    solutions, model = pieces.open_json_lines(file, root), file.with_name(WORLD_MODEL)
    if not model.is_file():
        return solutions
    hashes = [("solutions", solutions.digest), ("world model", pieces.hash_file(model))]
    digest = sources.digest((name, value.encode()) for name, value in hashes)
    return replace(solutions, digest=digest)


def _start(config: Config, task_id: str | None, nodes: dict[str, _Node]) -> pieces.Add:
    programs = ProgramRows(
        importer=NAME,
        task_id=task_id,
        problem=NAME,
        policy=config.policy,
        gpu=config.gpu,
        entry_point=config.entry_point,
    )
    return partial(_add, programs, nodes)


def _read_world_model(file: Path) -> dict[str, _Node]:
    """Return the parent and the action of each solution; empty without the file."""
    if not file.is_file():
        return {}
    tree = pieces.parse_document(file, file.parent).inner("decision_tree")
    steps = {node.text("node_id"): _Step.read(node) for node in tree.list("nodes")}
    nodes: dict[str, _Node] = {}
    for step in steps.values():
        if step.solution is None:
            continue
        above = steps.get(step.parent)
        seen = {id(step)}
        while above is not None and above.solution is None and id(above) not in seen:
            seen.add(id(above))
            above = steps.get(above.parent)
        parent = None if above is None else above.solution
        nodes[step.solution] = _Node(parent=parent, action=step.action)
    return nodes


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One node of the decision tree."""

    parent: str | None
    solution: str | None
    action: str | None

    @classmethod
    def read(cls, node: Fields) -> _Step:
        action = node.inner("action")
        texts = [action.prose(name) for name in ("title", "description", "rationale")]
        return cls(
            parent=node.text("parent_id"),
            solution=node.inner("solution_ref").text("solution_id"),
            action="\n\n".join(one for one in texts if one) or None,
        )


def _add(
    programs: ProgramRows, nodes: dict[str, _Node], gathered: BundleRows, run_id: str, row: Fields
) -> None:
    """Add a solution with its figures."""
    rows = programs.begin(gathered, run_id)
    identity, problem = row.require_text("solution_id"), row.require_text("definition")
    node = nodes.get(identity, _Node())
    attempt = programs.add(
        rows,
        identity,
        [problem, identity],
        problem=problem,
        kernel_id=_add_kernel(programs, rows, row.code("code")),
        parent=row.text("parent_solution_id") or node.parent,
        design=node.action,
    )
    quote = f"solution {row.text('solution_name') or identity} of {problem}"
    result = row.inner("eval_result")
    status = (result.text("status") or "").lower()
    correct = None if status in _UNJUDGED else status == "passed"
    programs.add_verdict(rows, attempt, correct, quote)
    gpu = programs.gpu
    rows.add_claim(attempt, "latency_ms", result.positive("latency_ms"), quote, gpu=gpu)
    speedup = result.positive("speedup_factor")
    baseline_ms = result.positive("reference_latency_ms")
    # The reference of a task is plain PyTorch.
    rows.add_claim(attempt, "speedup", speedup, quote, gpu=gpu, baseline="eager")
    rows.add_claim(attempt, "baseline_latency_ms", baseline_ms, quote, gpu=gpu, baseline="eager")
    factor = result.positive("mean_vs_baseline_factor")
    rows.add_claim(attempt, "reported_vs_baseline_solution", factor, quote, gpu=gpu)
    programs.add_metrics(rows, attempt, result.inner("metrics"), quote)


def _add_kernel(programs: ProgramRows, rows: AttemptRows, code: str | None) -> str | None:
    """Add a solution's kernel: three files of CUDA, or one text."""
    if code is None:
        return None
    matches = {name: pattern.search(code) for name, pattern in _CUDA_FILES.items()}
    files = {name: match[1].strip("\n") + "\n" for name, match in matches.items() if match}
    if "main.cpp" not in files:
        return programs.add_kernel(rows, code, None)
    return rows.gathered.add_kernel(files, entry_path="main.cpp", entry_point=programs.entry_point)
