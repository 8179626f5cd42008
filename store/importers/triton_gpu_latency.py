"""Makora's Triton programs with one latency each (makora-ai/triton-gpu-latency).

Reads the columns x and y of the train and test splits of June 2026, with problem_id and
holdout_group where they are present. x is a program: a KernelBench problem followed by a candidate
ModelNew. It becomes one kernel, and the part before the candidate's imports its task. y is a
runtime; the dataset documents neither its unit nor the GPU. Without --unit it becomes a claim with
the metric runtime_unknown_unit, and with it a claim in milliseconds. It is missing if the program
did not compile, was wrong, or failed, so that a missing y is a verdict without a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import store
from store.commandline.members import DeviceModel
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "triton-gpu-latency"
POLICY = "makora"
COLUMNS = {"x": True, "y": True, "problem_id": False, "holdout_group": False}
_UNITS_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    unit: Literal["s", "ms", "us"] | None = None
    """Unit of the runtimes, if you know it."""
    gpu: DeviceModel | None = None
    """GPU of the runtimes, if you know it."""
    source_revision: str = "unknown"
    license: str | None = "Apache-2.0"


def recognize(path: Path) -> str | None:
    columns = sources.read_columns(path)
    allowed = {*COLUMNS, "__index_level_0__"}
    return "columns x and y" if {"x", "y"} <= columns <= allowed else None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the programs of each file in bundles."""
    files = pieces.open_parquets(
        path, "train.parquet or test.parquet of triton-gpu-latency", COLUMNS
    )
    yield from pieces.Import(lake, NAME, config, source="makora-ai/triton-gpu-latency").read(
        files, lambda: partial(_add, config)
    )


def split_program(program: str) -> str | None:
    """Return the problem of a program: its text up to the imports of the candidate, or None."""
    lines = program.split("\n")
    start = next(
        (at for at, line in enumerate(lines) if line.startswith(("import triton", "from triton"))),
        None,
    )
    if start is None:
        return None
    while start > 0 and (
        not lines[start - 1].strip() or lines[start - 1].startswith(("import ", "from "))
    ):
        start -= 1
    return "\n".join(lines[:start]) or None


def _add(config: Config, rows: pieces.BundleRows, row: Fields) -> None:
    program = row.code("x")
    if program is None:
        return
    problem, code = row.text("problem_id"), split_program(program)
    name = problem or sources.digest([("problem", (code or program).encode())])[:16]
    task_id = rows.add_suite_task(code, suite=NAME, revision=config.source_revision, name=name)
    attempt = rows.add_attempt(
        [row.where, sources.digest([("x", program.encode())])],
        policy=POLICY,
        policy_kind="released",
        task_id=task_id,
        problem=problem,
        kernel_id=rows.add_code(program),
    )
    y = row.number("y")
    measured = y is not None and math.isfinite(y) and y > 0
    rows.add_verdict(
        attempt,
        evaluator=NAME,
        gpu=config.gpu,
        status="correct" if measured else "incorrect",
        message=None if measured else "The dataset has no runtime and does not say why.",
        quote=row.where,
    )
    if y is not None and measured:
        metric, figure = "runtime_unknown_unit", y
        if config.unit is not None:
            metric, figure = "latency_ms", y * _UNITS_MS[config.unit]
        rows.add_claim(attempt, metric, figure, row.where, gpu=config.gpu)
