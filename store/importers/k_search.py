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

import store
from store.commandline.members import AuthorOption
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "k-search"
SOLUTIONS, WORLD_MODEL = "solution_db.jsonl", "world_model.json"
_UNJUDGED = ("", "seeded", "unknown")
_CUDA_FILE = re.compile(
    r'<(header|cuda|cpp)_file name="(kernel\.h|kernel\.cu|main\.cpp)">(.*?)</\1_file>', re.DOTALL
)
_FIGURES = (
    ("latency_ms", "latency_ms", None),
    # The reference of a task is plain PyTorch.
    ("speedup", "speedup_factor", "eager"),
    ("baseline_latency_ms", "reference_latency_ms", "eager"),
    ("reported_vs_baseline_solution", "mean_vs_baseline_factor", None),
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.SearchOrigin):
    policy: AuthorOption = NAME
    entry_point: str = "run"
    """Function that the solutions define."""


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, SOLUTIONS):
        first = sources.read_first_object(file)
        if {"solution_id", "definition", "eval_result"} <= first.keys():
            return f"{file.name} with solution_id and eval_result"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the solutions of each search in bundles."""
    root, files = sources.find_files(
        *(path, SOLUTIONS, f"{SOLUTIONS} of K-Search, or a folder with it"),
        "Name the artifacts folder (.ksearch).",
    )
    reading = pieces.Import(lake, NAME, config)
    for file in files:
        solutions, model = pieces.open_json_lines(file, root), file.with_name(WORLD_MODEL)
        if model.is_file():
            # The identity of the solutions covers the world model.
            hashes = {"solutions": solutions.digest, "world model": pieces.hash_file(model)}
            solutions = replace(solutions, digest=sources.combine(**hashes))
        nodes = _read_world_model(model)
        yield from reading.read(
            [solutions],
            lambda nodes=nodes: partial(
                _add, pieces.ProgramRows(reading, NAME, config.entry_point), nodes
            ),
        )


def _read_world_model(file: Path) -> dict[str, tuple[str | None, str | None]]:
    # Of each solution: the one that it continues, and the action that led to it.
    if not file.is_file():
        return {}
    tree = pieces.parse_document(file, file.parent).inner("decision_tree")
    steps = {node.text("node_id"): node for node in tree.list("nodes")}
    solution_of = {
        name: node.inner("solution_ref").text("solution_id") for name, node in steps.items()
    }
    nodes: dict[str, tuple[str | None, str | None]] = {}
    for name, node in steps.items():
        solution = solution_of[name]
        if solution is None:
            continue
        # The parent is the nearest node above that has a solution; a circle has none.
        above, seen = node.text("parent_id"), {name}
        while above in steps and solution_of[above] is None and above not in seen:
            seen.add(above)
            above = steps[above].text("parent_id")
        action = node.inner("action")
        texts = [action.prose(part) for part in ("title", "description", "rationale")]
        nodes[solution] = (
            solution_of.get(above),
            "\n\n".join(text for text in texts if text) or None,
        )
    return nodes


def _add(
    programs: pieces.ProgramRows,
    nodes: dict[str, tuple[str | None, str | None]],
    rows: pieces.BundleRows,
    row: Fields,
) -> None:
    identity, problem = row.require_text("solution_id"), row.require_text("definition")
    continued, action = nodes.get(identity, (None, None))
    code = row.code("code")
    files: dict[str, str] = {}
    for match in _CUDA_FILE.finditer(code or ""):
        files.setdefault(match[2], match[3].strip("\n") + "\n")
    if "main.cpp" in files:
        kernel_id = rows.add_kernel(files, entry_path="main.cpp", entry_point=programs.entry_point)
    else:
        kernel_id = programs.add_code(rows, code)
    result, gpu = row.inner("eval_result"), programs.config.gpu
    status, metrics = (result.text("status") or "").lower(), result.inner("metrics")
    figures = {name: result.positive(name) for _, name, _ in _FIGURES}
    attempt = programs.add(
        rows,
        identity,
        [problem, identity],
        problem=problem,
        kernel_id=kernel_id,
        parent=row.text("parent_solution_id") or continued,
        design=action,
    )
    quote = f"solution {row.text('solution_name') or identity} of {problem}"
    correct = None if status in _UNJUDGED else status == "passed"
    rows.add_result(attempt, correct, quote, gpu=gpu)
    for metric, name, baseline in _FIGURES:
        rows.add_claim(attempt, metric, figures[name], quote, gpu=gpu, baseline=baseline)
    programs.add_metrics(rows, attempt, metrics, quote)
