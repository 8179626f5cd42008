"""The AI CUDA Engineer Archive of Sakana AI: Parquet files of CUDA kernels for KernelBench tasks.

Reads one file (level_1.parquet …) or a folder of them. A kernel is its CUDA code with the
functional PyTorch module that calls it. Runtimes and speedups of the archive become claims, and
profiles become analyses. Verdicts become evaluations of evaluator ai-cuda-engineer, version 0: they
predate the exploit of that evaluator that its authors published.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import store
from store.commandline.members import DeviceModel
from store.errors import ImportFailed
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import pieces, sources

NAME = "sakana"
SUITE = "kernelbench"
SUITE_REVISION = "v0"
POLICY = "ai-cuda-engineer"
KERNEL_PATH = "kernel.cu"
CALLER_PATH = "functional.py"
MESSAGE_CHARACTERS = 500
PROFILE_CHARACTERS = 100_000
PROFILERS = {
    "NCU_Profile": "Nsight Compute",
    "Torch_Profile": "torch.profiler",
    "Clang_Tidy": "clang-tidy",
}
"""Columns with profiles, and what wrote them."""
_ABSENT = ("", "None", "nan")
"""What the archive writes for a missing value."""
COLUMNS = pieces.name_columns(
    required="PyTorch_Code_Module CUDA_Code",
    optional=(
        "Level_ID Task_ID Op_Name Kernel_Name PyTorch_Code_Functional CUDA_Runtime "
        "CUDA_Speedup_Native CUDA_Speedup_Compile Correct Max_Diff Error NCU_Profile "
        "Torch_Profile Clang_Tidy"
    ),
)
"""Columns of the archive, and whether each is required."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str = "unknown"
    license: str | None = "CC-BY-4.0"
    gpu: DeviceModel = "H100"
    """GPU that the archive was timed on."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "PyTorch_Code_Module", "CUDA_Code")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of each file in bundles."""
    files = pieces.open_parquets(path, "level_1.parquet … of the AI CUDA Engineer Archive", COLUMNS)
    reading = pieces.Import(
        lake, NAME, config, source="SakanaAI/AI-CUDA-Engineer-Archive", namespace=POLICY
    )
    yield from reading.read(files, lambda: partial(_add, config.gpu))


def _add(gpu: str, rows: pieces.BundleRows, row: Fields) -> None:
    row = row.without(*_ABSENT)
    task_code, code = row.code("PyTorch_Code_Module"), row.code("CUDA_Code")
    place = f"{row.where.rpartition(', ')[0]}, PyTorch_Code_Module"
    if task_code is None or code is None:
        raise ImportFailed(f"{row.where} has no task or no code")
    family = pieces.classify_task(task_code, place)
    task_id = rows.add_task(task_code)
    level, problem = row.whole("Level_ID"), row.whole("Task_ID")
    if level is not None and problem is not None:
        rows.add_label(
            task_id,
            family=family,
            suite=SUITE,
            revision=SUITE_REVISION,
            name=f"level{level}/{problem}",
            title=row.text("Op_Name"),
            level=level,
            problem_id=problem,
        )
    caller = row.code("PyTorch_Code_Functional")
    kernel_id = rows.add_kernel(
        {KERNEL_PATH: code} | ({} if caller is None else {CALLER_PATH: caller}),
        entry_path=KERNEL_PATH,
        entry_point="forward",
    )
    named = [task_id, kernel_id, row.text("Kernel_Name") or row.where]
    attempt = rows.add_attempt(
        named, policy=POLICY, policy_kind="released", task_id=task_id, kernel_id=kernel_id
    )
    error, difference = row.text("Error") or "", row.number("Max_Diff")
    # The archive distinguishes correct, incorrect and failed.
    status, reason = "incorrect", "unspecified" if difference is None else "incorrect_numerical"
    if row.flag("Correct"):
        status, reason = "correct", None
    elif "error building extension" in error.lower() or "compilation" in error.lower():
        status, reason = "compile_error", "build_failed"
    elif error and difference is None:
        status = "crash"
    rows.add_verdict(
        attempt,
        evaluator=POLICY,
        gpu=gpu,
        status=status,
        reason=reason,
        evaluation_id=content_id("evaluation", POLICY, *named, row.where, status),
        message=error[:MESSAGE_CHARACTERS] or None,
        max_abs_error=difference,
    )
    for metric, baseline, column in (
        ("latency_ms", None, "CUDA_Runtime"),
        ("speedup", "eager", "CUDA_Speedup_Native"),
        ("speedup", "compile", "CUDA_Speedup_Compile"),
    ):
        figure = row.positive(column)
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
        claim_id = content_id("claim", json.dumps([named, identity], sort_keys=True))
        quote = f"{column} of {row.where}"
        rows.add_claim(
            attempt, metric, figure, quote, gpu=gpu, baseline=baseline, claim_id=claim_id
        )
    for column, author in PROFILERS.items():
        written = row.prose(column)
        if written is None:
            continue
        # A profile is the text of a Python dictionary. Only its literals are evaluated; any
        # other text stays unchanged.
        try:
            value = ast.literal_eval(written) if len(written) <= PROFILE_CHARACTERS else written
            body = json.dumps(value, indent=1, ensure_ascii=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            body = written
        body, by = body[:PROFILE_CHARACTERS], f"{author} ({POLICY})"
        rows.add_analysis(attempt, "profiler", by, body, row.where, column)
