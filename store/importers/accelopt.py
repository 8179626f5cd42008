"""Candidates of an AccelOpt search: executor_results.json with the plans and solutions beside it.

Reads both forms that AccelOpt at 47e29a7 writes. A candidate for NKIBench states its code and that
of its baseline, the kernel that it rewrites. A candidate for FlashInfer-Bench names files with
solutions, which are found by name below the path. A candidate becomes a kernel and an attempt that
continues the attempt with the code of its baseline; its plan becomes the design. Results and
latencies in milliseconds become claims. AccelOpt's speedup is over the baseline, so its metric is
speedup_over_parent. The CSV files hold no candidates and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from store.errors import ImportFailed
from store.foreign import json_text
from store.foreign.fields import Fields
from store.importers.flashinfer import files as formats
from store.importers.reading import detection, pieces, sources
from store.importers.reading.attempts import AttemptRows
from store.importers.reading.rows import BundleRows
from store.importers.reading.tasks import find_optional
from store.importers.searches.programs import ProgramRows
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

NAME = "accelopt"
IMPORTER_VERSION = 1
RESULTS, PLANS = "executor_results.json", "planner_results.json"
_STARTED = "executor_start_timestamp"
_PLAN = re.compile(r"plan_([0-9]{1,6})_([0-9]{1,6})")
_ABOVE = ("", "*/", "*/*/", "*/*/*/")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the accelopt importer."""

    task: str | None = None
    """Task of the search: its name, or the first 6 characters of its id."""
    policy: str = NAME
    """Name of the policy that wrote the candidates."""
    gpu: str | None = None
    """Device of the figures."""
    source_revision: str | None = None
    """Revision of the search."""
    license: str | None = None
    """SPDX identifier under which the candidates were released."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path has results of AccelOpt."""
    for file in detection.list_files(path, *(f"{above}{RESULTS}" for above in _ABOVE)):
        if detection.has_names(file, "executor_results"):
            return f"{file.name} with executor_results"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield the candidates in bundles, in the order of the iterations.

    Raises ImportFailed if there is no result file, or one is malformed.
    """
    root = sources.require_path(path, f"a folder with {RESULTS} of AccelOpt")
    files = [root] if root.name == RESULTS else sorted(root.rglob(RESULTS))
    if not files:
        raise ImportFailed(f"{root} holds no {RESULTS}", "Name the folder of the experiment.")
    folder = root if root.is_dir() else root.parent
    solutions = {
        file.name: file for file in sorted(folder.rglob("*.json")) if "solutions" in file.parts
    }
    starts = {file: pieces.parse_document(file, root).text(_STARTED) or "" for file in files}
    task_id = find_optional(lake, config.task)
    ordered = sorted(files, key=lambda file: (starts[file], file))
    plans = [one for file in ordered if (one := file.with_name(PLANS)).is_file()]
    yield from pieces.read_pieces(
        lake,
        [
            # One source, because a candidate continues one of an earlier iteration.
            pieces.open_documents(
                RESULTS,
                [*ordered, *plans, *solutions.values()],
                folder,
                partial(_parse, folder=folder, solutions=solutions),
            )
        ],
        importer=NAME,
        version=IMPORTER_VERSION,
        config=config,
        origin=BundleRows(
            source=NAME, source_revision=config.source_revision, license=config.license
        ),
        start=lambda: _Candidates(config, task_id).add,
    )


def _parse(file: Path, folder: Path, solutions: dict[str, Path]) -> Iterator[Fields]:
    if file.name != RESULTS:
        return
    document = pieces.parse_document(file, folder)
    plans = _read_plans(file.with_name(PLANS), folder)
    for service in document.list("executor_results"):
        name = service.text("service_name") or service.text("baseline_solution_path")
        for key in service.values:
            match = _PLAN.fullmatch(key)
            if match is None or name is None:
                continue
            candidate = service.inner(key)
            values = {
                **candidate.values,
                "case": service.text("case_name") or _stem(service, "workload_path"),
                "place": [document.text("exp_date") or "", PurePosixPath(name).name, key],
                "at": document.values.get(_STARTED),
                "plan": plans.get((name, int(match[1]))),
                "solution": _load(candidate, "solution_path", solutions, folder),
                "parent": _load(candidate, "baseline_solution_path", solutions, folder),
            }
            yield Fields(values=values, where=candidate.where)


def _read_plans(file: Path, folder: Path) -> dict[tuple[str, int], str]:
    """Return the plans of each service by their numbers; empty without the file."""
    if not file.is_file():
        return {}
    value = json_text.parse(sources.read_text(file, folder), str(file))
    by_number: dict[tuple[str, int], str] = {}
    for one in Fields(values={"plans": value}, where=str(file)).list("plans"):
        name = one.text("service_name") or one.text("baseline_solution_path")
        plans = one.values.get("plans")
        for number, plan in enumerate(cast("list[Any]", plans) if isinstance(plans, list) else []):
            if name is not None and isinstance(plan, str):
                by_number[name, number] = plan
    return by_number


def _stem(fields: Fields, name: str) -> str:
    return PurePosixPath(fields.text(name) or "unknown").stem


def _load(
    candidate: Fields, name: str, solutions: dict[str, Path], folder: Path
) -> formats.Solution | None:
    """Return the solution that a candidate names, or None if its file is not there."""
    file = solutions.get(PurePosixPath(candidate.text(name) or "").name)
    if file is None:
        return None
    return formats.parse_solution(dict(pieces.parse_document(file, folder).values), str(file))


class _Candidates:
    """Adds candidates; a parent is the attempt with its code."""

    def __init__(self, config: Config, task_id: str | None) -> None:
        self._programs = ProgramRows(
            importer=NAME,
            task_id=task_id,
            problem=NAME,
            policy=config.policy,
            gpu=config.gpu,
            entry_point="kernel",
        )

    def add(self, gathered: BundleRows, run_id: str, row: Fields) -> None:
        """Add a candidate, and before it the first baseline of its case."""
        rows = self._programs.begin(gathered, run_id)
        case = row.require_text("case")
        kernel_id = self._add_kernel(rows, row.values.get("solution"), row.code("body"))
        parent_id = self._add_kernel(rows, row.values.get("parent"), row.code("baseline"))
        parent = None if parent_id is None else f"{case} {parent_id}"
        if parent is not None and not self._programs.has(parent):
            place = ["baseline", case, str(parent_id)]
            at = row.moment("at")
            self._programs.add(
                rows, parent, place, kernel_id=parent_id, problem=case, created_at=at
            )
        names_file = "solution_path" in row.values
        missing = "its solution is not there" if names_file else "no implementation"
        attempt = self._programs.add(
            rows,
            f"{case} {kernel_id or row.where}",
            [*cast("list[str]", row.values["place"]), kernel_id or ""],
            kernel_id=kernel_id,
            parent=parent,
            problem=case,
            design=row.prose("plan"),
            parse_error=missing if kernel_id is None else None,
            created_at=row.moment("at"),
        )
        date, service, plan = cast("list[str]", row.values["place"])
        quote = f"{plan} of {service}, {date}"
        error, latency_ms = row.text("error"), row.positive("latency")
        correct = False if error else (True if latency_ms is not None else None)
        gpu = self._programs.gpu
        self._programs.add_verdict(rows, attempt, correct, quote)
        rows.add_claim(attempt, "latency_ms", latency_ms, quote, gpu=gpu)
        speedup = row.positive("speedup")
        rows.add_claim(attempt, "speedup_over_parent", speedup, quote, gpu=gpu)

    def _add_kernel(
        self, rows: AttemptRows, solution: formats.Solution | None, code: str | None
    ) -> str | None:
        if solution is not None:
            return rows.gathered.add_kernel(
                solution.files, entry_path=solution.entry_path, entry_point=solution.entry_point
            )
        return self._programs.add_kernel(rows, code, None)
