"""Run folders of KernelBench: kernels as files, and eval_results.json with their verdicts.

Writes one folder for each level, levelL, because KernelBench's file names state only the number of
the problem. Runtimes are in milliseconds; like KernelBench, it writes -1.0 if a task was not timed.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from store.errors import ExportRefused
from store.exporters.writing.run import Which, read_attempts
from store.lake.reader import Lake

Config = Which


def write(lake: Lake, folder: Path, config: Which) -> dict[str, int]:
    """Write level_L_problem_P_sample_S_kernel.py and eval_results.json of every level."""
    device, rows = read_attempts(lake, config)
    numbered = [row for row in rows if row["level"] is not None and row["problem_id"] is not None]
    if not numbered:
        raise ExportRefused(
            f"the tasks of {config.suite} have no level and number, which KernelBench's files "
            "are named by",
            "`store export jsonl` writes every kernel.",
        )
    results: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for row in numbered:
        level, problem, sample = row["level"], row["problem_id"], row["sample_id"]
        place = folder / f"level{level}"
        place.mkdir(exist_ok=True)
        name = f"level_{level}_problem_{problem}_sample_{sample}_kernel.py"
        (place / name).write_bytes(row["code"].encode())
        if row["status"] is not None:
            found = results.setdefault(level, {}).setdefault(str(problem), [])
            found.append(_verdict(row, str(device)))
    for level, of_level in results.items():
        text = json.dumps(of_level, indent=4, sort_keys=True)
        (folder / f"level{level}" / "eval_results.json").write_text(text + "\n", "utf-8")
    verdicts = sum(len(one) for of_level in results.values() for one in of_level.values())
    return {"kernels": len(numbered), "verdicts": verdicts}


def _verdict(row: dict[str, Any], device: str) -> dict[str, Any]:
    samples: list[float] = row["samples_ms"] or []
    named = {"hardware": device, "device": device}
    correct = row["status"] == "correct"
    metadata: dict[str, Any] = dict(named)
    if not correct:
        metadata["error_message"] = f"{row['status']}: {row['reason']}"
    if row["quarantined"]:
        metadata["quarantined"] = True
    if correct and not row["equivalent"]:
        metadata["equivalent"] = False
    return {
        "sample_id": row["sample_id"],
        "compiled": row["status"] != "compile_error",
        "correctness": correct,
        "metadata": metadata,
        "runtime": statistics.fmean(samples) if samples else -1.0,
        "runtime_stats": {
            "mean": statistics.fmean(samples),
            "std": statistics.pstdev(samples),
            "min": min(samples),
            "max": max(samples),
            "num_trials": len(samples),
            **named,
        }
        if samples
        else {},
    }
