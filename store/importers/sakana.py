"""The AI CUDA Engineer Archive of Sakana AI: Parquet files of CUDA kernels for KernelBench tasks.

Reads one file (level_1.parquet …) or a folder of them. A kernel is its CUDA code with the
functional PyTorch module that calls it. Runtimes and speedups of the archive become claims, and
profiles become analyses. Verdicts become evaluations of evaluator ai-cuda-engineer, version 0: they
predate the exploit of that evaluator that its authors published.
"""

from __future__ import annotations

import ast
import json
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import store
from store.code import task_families
from store.errors import ImportFailed
from store.ids import content_id
from store.importers.reading import detection, parquet, pieces, sources
from store.importers.reading.rows import BundleRows, decide_splits

log = logging.getLogger(__name__)

NAME = "sakana"
SUITE = "kernelbench"
SUITE_REVISION = "v0"
POLICY = "ai-cuda-engineer"
BUNDLE_ROWS = 1_000
KERNEL_PATH = "kernel.cu"
CALLER_PATH = "functional.py"
MESSAGE_CHARACTERS = 500
PROFILE_CHARACTERS = 100_000
_ABSENT = ("", "None", "nan")
COLUMNS = {
    "PyTorch_Code_Module": True,
    "CUDA_Code": True,
    "Level_ID": False,
    "Task_ID": False,
    "Op_Name": False,
    "Kernel_Name": False,
    "PyTorch_Code_Functional": False,
    "CUDA_Runtime": False,
    "CUDA_Speedup_Native": False,
    "CUDA_Speedup_Compile": False,
    "Correct": False,
    "Max_Diff": False,
    "Error": False,
    "NCU_Profile": False,
    "Torch_Profile": False,
    "Clang_Tidy": False,
}
"""Columns of the archive, and whether each is required."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    """Options of the sakana importer."""

    source_revision: str = "unknown"
    license: str | None = "CC-BY-4.0"
    gpu: str = "H100"
    """GPU that the archive was timed on."""


def recognize(path: Path) -> str | None:
    """Return what shows that a path is the archive."""
    return detection.find_columns(path, "PyTorch_Code_Module", "CUDA_Code")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per thousand rows of each file.

    Raises ImportFailed if a file is not Parquet or lacks a required column, or a row names an
    unknown task.
    """
    root = sources.require_path(path, "level_1.parquet … of the AI CUDA Engineer Archive")
    files = parquet.find(root)
    family: dict[str, str] = {}
    for file in files:
        for code in parquet.read_distinct(file, "PyTorch_Code_Module"):
            sources.check_task(code, f"{file.name}, PyTorch_Code_Module")
            family[code] = task_families.classify_family(code)
    splits = decide_splits(SUITE, set(family.values()), lake)
    reading = pieces.Import(
        lake, NAME, config, source="SakanaAI/AI-CUDA-Engineer-Archive", namespace=POLICY
    )
    for file in files:
        digest = pieces.hash_file(file)
        for number, batch in enumerate(parquet.read_batches(file, COLUMNS, BUNDLE_ROWS)):
            first = number * BUNDLE_ROWS
            message = f"{NAME} {file.name}: rows {first} to {first + len(batch) - 1}"
            listed = [
                _Row(row, f"{file.name}, row {first + index}") for index, row in enumerate(batch)
            ]

            def add(rows: BundleRows, listed: list[_Row] = listed, message: str = message) -> None:
                rows.add_policy(POLICY, "released")
                rows.add_device(config.gpu)
                added = [_add(rows, row, family, config.gpu) for row in listed]
                if not all(added):
                    log.warning("%s: %d rows have no task or no code", message, added.count(False))
                rows.add_splits(splits)

            content = f"{file.name} {number} {digest}"
            yield reading.make_bundle(content, message, f"{file.name} {first}", add)


def _add(rows: BundleRows, row: _Row, family: dict[str, str], gpu: str) -> bool:
    """Add a row's task, kernel, verdict, figures and profiles; return False without a kernel."""
    task_code, code = row.text("PyTorch_Code_Module"), row.text("CUDA_Code")
    if task_code is None or code is None:
        return False
    task_id = rows.add_task(task_code)
    level, problem = row.number("Level_ID"), row.number("Task_ID")
    if level is not None and problem is not None:
        rows.add_label(
            task_id,
            family=family[task_code],
            suite=SUITE,
            revision=SUITE_REVISION,
            name=f"level{level}/{problem}",
            title=row.text("Op_Name"),
            level=level,
            problem_id=problem,
        )
    caller = row.text("PyTorch_Code_Functional")
    kernel_id = rows.add_kernel(
        {KERNEL_PATH: code} | ({} if caller is None else {CALLER_PATH: caller}),
        entry_path=KERNEL_PATH,
        entry_point="forward",
    )
    place = [task_id, kernel_id, row.text("Kernel_Name") or row.where]
    attempt = rows.add_attempt(place, policy=POLICY, task_id=task_id, kernel_id=kernel_id)
    status, reason = row.verdict()
    rows.add_verdict(
        attempt,
        evaluator=POLICY,
        gpu=gpu,
        status=status,
        reason=reason,
        evaluation_id=content_id("evaluation", POLICY, *place, row.where, status),
        message=row.message(),
        max_abs_error=row.figure("Max_Diff"),
    )
    for metric, baseline, column in (
        ("latency_ms", None, "CUDA_Runtime"),
        ("speedup", "eager", "CUDA_Speedup_Native"),
        ("speedup", "compile", "CUDA_Speedup_Compile"),
    ):
        figure = row.figure(column)
        if figure is None or figure <= 0:
            continue
        identity = {
            "task_id": task_id,
            "kernel_id": kernel_id,
            "policy_id": POLICY,
            "gpu": gpu,
            "baseline": baseline,
            "metric": metric,
            "speedup": figure if metric == "speedup" else None,
            "value": figure if metric != "speedup" else None,
            **rows.origin(),
        }
        claim_id = content_id("claim", json.dumps([place, identity], sort_keys=True))
        quote = f"{column} of {row.where}"
        rows.add_claim(
            attempt, metric, figure, quote, gpu=gpu, baseline=baseline, claim_id=claim_id
        )
    for column, author in (
        ("NCU_Profile", "Nsight Compute"),
        ("Torch_Profile", "torch.profiler"),
        ("Clang_Tidy", "clang-tidy"),
    ):
        body = row.profile(column)
        if body is not None:
            rows.add_analysis(attempt, "profiler", f"{author} ({POLICY})", body, row.where, column)
    return True


@dataclass(frozen=True)
class _Row:
    """A row with its place in the archive."""

    values: Mapping[str, Any]
    where: str

    def text(self, column: str) -> str | None:
        """Return a text; the archive writes a missing one as NULL, "None" or nothing."""
        value = self.values.get(column)
        if value is None or value in _ABSENT:
            return None
        if not isinstance(value, str):
            raise ImportFailed(f"{self.where}: {column} is {value!a:.40}, no text")
        if "\0" in value:
            raise ImportFailed(f"{self.where}: {column} holds a zero byte")
        return value

    def number(self, column: str) -> int | None:
        """Return a whole number of 0 or more; they are floats if a column has gaps."""
        value = self.figure(column)
        if value is None:
            return None
        if value != int(value) or not 0 <= value < 1_000_000:
            raise ImportFailed(f"{self.where}: {column} is {value}, no number of a task")
        return int(value)

    def figure(self, column: str) -> float | None:
        """Return a finite number, or None."""
        value = self.values.get(column)
        if value is None or isinstance(value, bool):
            return None
        try:
            figure = float(value)
        except (TypeError, ValueError):
            raise ImportFailed(f"{self.where}: {column} is {value!a:.40}, no number") from None
        return figure if math.isfinite(figure) else None

    def verdict(self) -> tuple[str, str | None]:
        """Return status and reason; the archive distinguishes correct, incorrect and failed."""
        correct = self.values.get("Correct")
        if correct is not None and not isinstance(correct, bool):
            raise ImportFailed(f"{self.where}: Correct is {correct!a:.40}, not true or false")
        if correct:
            return "correct", None
        error = self.text("Error") or ""
        if "error building extension" in error.lower() or "compilation" in error.lower():
            return "compile_error", "build_failed"
        if error and self.figure("Max_Diff") is None:
            return "crash", "unspecified"
        differs = self.figure("Max_Diff") is not None
        return "incorrect", "incorrect_numerical" if differs else "unspecified"

    def message(self) -> str | None:
        """Return the first line of the error."""
        error = self.text("Error")
        return None if error is None else " ".join(error.split())[:MESSAGE_CHARACTERS]

    def profile(self, column: str) -> str | None:
        """Return a profile as JSON; the archive has the text of a Python dictionary.

        Only literals are evaluated; any other text stays unchanged.
        """
        written = self.text(column)
        if written is None:
            return None
        try:
            value = ast.literal_eval(written) if len(written) <= PROFILE_CHARACTERS else written
            body = json.dumps(value, indent=1, ensure_ascii=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            body = written
        return body[:PROFILE_CHARACTERS]
