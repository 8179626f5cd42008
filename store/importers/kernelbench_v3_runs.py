"""Agent runs of KernelBench v3 (Infatoshi/kernelbench-v3-runs): results.csv and solutions/.

Reads the columns of the dataset card of revision 6767f50. A row is the best result of one model on
one problem and GPU. Its winning solution, if there is one, becomes a kernel; verdict, speedup and
latencies become claims. Their baseline is eager or torch.compile, whichever was faster. The texts
of the problems are a dataset of their own (kernelbench-v3-problems): import them with `store import
kernelbench PROBLEMS --revision v3`, then add --suite-revision v3 to link attempts to tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.errors import ImportFailed
from store.foreign import left_out, text_files
from store.foreign.text_files import Fields
from store.importers.kernelbench import split_stem
from store.importers.reading import pieces, sources

NAME = "kernelbench-v3-runs"
RESULTS = "results.csv"
_REQUIRED = ("model", "gpu", "level", "problem", "correct", "solution_link")
_NUMBERS = ("level", "speedup", "ref_ms", "sol_ms", "turns", "total_tokens", "estimated_cost_usd")
_BASELINES = {"eager": "eager", "compiled": "compile", "compile": "compile"}


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    suite_revision: str | None = None
    """Revision of the suite kernelbench under which the v3 problems were imported."""
    source_revision: str = "unknown"
    license: str | None = "CC-BY-4.0"


def recognize(path: Path) -> str | None:
    file = path / RESULTS if path.is_dir() else path
    head = sources.read_head(file).partition("\n")[0] if file.is_file() else ""
    wanted = {"solution_link", "baseline_type", "precision_used"}
    return (
        f"{file.name} with {', '.join(sorted(wanted))}" if wanted <= set(head.split(",")) else None
    )


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of results.csv in bundles."""
    given = sources.require_path(path, "the folder with results.csv and solutions/")
    file = given / RESULTS if given.is_dir() else given
    root = file.parent
    if not file.is_file():
        raise ImportFailed(f"{given} holds no {RESULTS}", "Name the folder of the dataset.")
    solutions = sorted((root / "solutions").glob("*"))
    tasks = pieces.read_suite_tasks(lake, "kernelbench", config.suite_revision)
    parse = partial(_parse, root=root)
    yield from pieces.Import(lake, NAME, config, source="Infatoshi/kernelbench-v3-runs").read(
        [pieces.open_documents(RESULTS, [file], root, parse, more=solutions)],
        lambda: partial(_add, tasks),
    )


def _parse(file: Path, root: Path) -> Iterator[Fields]:
    for row in text_files.read_csv(
        file, _REQUIRED, numbers=_NUMBERS, flags=("correct", "compiled")
    ):
        with left_out.errors():
            link, code = row.text("solution_link"), None
            if link is not None:
                solution = root / "solutions" / Path(link.replace("\\", "/")).name
                # A name that is too long is no file; Path.is_file raises OSError for it.
                if not os.path.isfile(solution):
                    raise ImportFailed(
                        f"{row.where}: there is no solutions/{solution.name}",
                        "Download the folder solutions/ as well.",
                    )
                code = sources.read_text(solution, root)
            yield Fields(values={**row.values, "code": code}, where=row.where)


def _add(tasks: Mapping[Any, str], rows: pieces.BundleRows, row: Fields) -> None:
    model, gpu, problem = (row.require_text(name) for name in ("model", "gpu", "problem"))
    level, named = row.require_whole("level"), split_stem(problem.removesuffix(".py"))
    code = row.code("code")
    attempt = rows.add_attempt(
        [model, gpu, str(level), problem, row.text("run_dir") or ""],
        policy=model,
        task_id=None if named is None else tasks.get((level, named[0])),
        problem=f"level{level}/{problem}",
        kernel_id=rows.add_code(code),
        parse_error="the release has no solution" if code is None else None,
        cost_usd=row.number("estimated_cost_usd"),
    )
    claim: Any = partial(rows.add_claim, attempt, gpu=gpu)
    quote = f"{row.where.rpartition('/')[2]}: {model} on {gpu}, {problem}"
    if code is not None:
        rows.add_result(attempt, bool(row.flag("correct")), quote, gpu=gpu)
    if row.flag("correct"):
        baseline = _BASELINES.get(row.text("baseline_type") or "")
        if baseline is not None:
            claim("speedup", row.positive("speedup"), quote, baseline=baseline)
            claim("baseline_latency_ms", row.positive("ref_ms"), quote, baseline=baseline)
        claim("latency_ms", row.positive("sol_ms"), quote)
