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
from typing import Any, cast

import store
from store.commandline.members import AuthorOption
from store.foreign import text_files
from store.foreign.text_files import Fields
from store.importers.reading import flashinfer, pieces, sources

NAME = "accelopt"
RESULTS, PLANS = "executor_results.json", "planner_results.json"
_STARTED = "executor_start_timestamp"
_PLAN = re.compile(r"plan_([0-9]{1,6})_([0-9]{1,6})")


@dataclass(frozen=True, kw_only=True)
class Config(pieces.SearchOrigin):
    policy: AuthorOption = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, RESULTS):
        if sources.has_names(file, "executor_results"):
            return f"{file.name} with executor_results"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the candidates in bundles, in the order of the iterations."""
    root, files = sources.find_files(
        *(path, RESULTS, f"a folder with {RESULTS} of AccelOpt"),
        "Name the folder of the experiment.",
    )
    folder = root if root.is_dir() else root.parent
    solutions = {
        file.name: file for file in sorted(folder.rglob("*.json")) if "solutions" in file.parts
    }
    starts = {file: pieces.parse_document(file, root).text(_STARTED) or "" for file in files}
    reading = pieces.Import(lake, NAME, config)
    ordered = sorted(files, key=lambda file: (starts[file], file))
    plans = [one for file in ordered if (one := file.with_name(PLANS)).is_file()]
    parse = partial(_parse, folder=folder, solutions=solutions)
    # One source, because a candidate continues one of an earlier iteration.
    more = [*plans, *solutions.values()]
    yield from reading.read(
        [pieces.open_documents(RESULTS, ordered, folder, parse, more)],
        lambda: partial(_add, pieces.ProgramRows(reading, NAME, "kernel")),
    )


def _parse(file: Path, folder: Path, solutions: dict[str, Path]) -> Iterator[Fields]:
    document = pieces.parse_document(file, folder)
    texts: dict[tuple[str, int], str] = {}
    planned = file.with_name(PLANS)
    if planned.is_file():
        value = text_files.parse_json(sources.read_text(planned, folder), str(planned))
        for one in Fields(values={"plans": value}, where=str(planned)).list("plans"):
            name = one.text("service_name") or one.text("baseline_solution_path")
            plans = one.values.get("plans")
            listed = cast("list[Any]", plans) if isinstance(plans, list) else []
            for number, plan in enumerate(listed):
                if name is not None and isinstance(plan, str):
                    texts[name, number] = plan
    for service in document.list("executor_results"):
        name = service.text("service_name") or service.text("baseline_solution_path")
        workload = PurePosixPath(service.text("workload_path") or "unknown")
        for key in service.values:
            match = _PLAN.fullmatch(key)
            if match is None or name is None:
                continue
            candidate = service.inner(key)
            values = {
                **candidate.values,
                "case": service.text("case_name") or workload.stem,
                "place": [document.text("exp_date") or "", PurePosixPath(name).name, key],
                "at": document.values.get(_STARTED),
                "plan": texts.get((name, int(match[1]))),
                "solution": _load(candidate, "solution_path", solutions, folder),
                "parent": _load(candidate, "baseline_solution_path", solutions, folder),
            }
            yield Fields(values=values, where=candidate.where)


def _load(
    candidate: Fields, name: str, solutions: dict[str, Path], folder: Path
) -> flashinfer.Solution | None:
    file = solutions.get(PurePosixPath(candidate.text(name) or "").name)
    if file is None:
        return None
    return flashinfer.parse_solution(pieces.parse_document(file, folder))


def _add(programs: pieces.ProgramRows, rows: pieces.BundleRows, row: Fields) -> None:
    """Add a candidate, and before it the first baseline of its case, the attempt with its code."""
    case, at = row.require_text("case"), row.moment("at")
    kernel_id = _add_kernel(programs, rows, row.values.get("solution"), row.code("body"))
    parent_id = _add_kernel(programs, rows, row.values.get("parent"), row.code("baseline"))
    parent = None if parent_id is None else f"{case} {parent_id}"
    if parent is not None and not programs.has(parent):
        place = ["baseline", case, str(parent_id)]
        programs.add(rows, parent, place, kernel_id=parent_id, problem=case, created_at=at)
    names_file = "solution_path" in row.values
    missing = "its solution is not there" if names_file else "no implementation"
    error, latency_ms, speedup = row.text("error"), row.positive("latency"), row.positive("speedup")
    date, service, plan = place = cast("list[str]", row.values["place"])
    attempt = programs.add(
        rows,
        f"{case} {kernel_id or row.where}",
        [*place, kernel_id or ""],
        kernel_id=kernel_id,
        parent=parent,
        problem=case,
        design=row.prose("plan"),
        parse_error=missing if kernel_id is None else None,
        created_at=at,
    )
    quote, gpu = f"{plan} of {service}, {date}", programs.config.gpu
    correct = False if error else (True if latency_ms is not None else None)
    rows.add_result(attempt, correct, quote, gpu=gpu)
    rows.add_claim(attempt, "latency_ms", latency_ms, quote, gpu=gpu)
    rows.add_claim(attempt, "speedup_over_parent", speedup, quote, gpu=gpu)


def _add_kernel(
    programs: pieces.ProgramRows,
    rows: pieces.BundleRows,
    solution: flashinfer.Solution | None,
    code: str | None,
) -> str | None:
    if solution is not None:
        return rows.add_kernel(
            solution.files, entry_path=solution.entry_path, entry_point=solution.entry_point
        )
    return programs.add_code(rows, code)
