"""JSON lines as the CUDA-L1 release has them: per device, each task with its best kernel.

The best has the highest speedup over eager among those that may be ranked and are neither
quarantined nor another function than the task's. A task without one has no code and no score.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.errors import ExportRefused
from store.exporters._attempts import Which, attempts

if TYPE_CHECKING:
    from store.reader import Lake

Config = Which

_SCORES = {
    "score_default": "eager",
    "score_torch_compile_default": "compile",
    "score_torch_compile_reduce_overhead": "compile_reduce_overhead",
    "score_cuda_graph": "cuda_graph",
    "score_cudnn": "cudnn",
}


def write(lake: Lake, folder: Path, config: Which) -> dict[str, int]:
    """Write optimized_cuda_code/DEVICE.json."""
    device, rows = attempts(lake, config)
    tasks: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["level"] is not None and row["problem_id"] is not None:
            tasks.setdefault(row["task_id"], []).append(row)
    if not tasks or device is None:
        raise ExportRefused(
            f"no numbered task of {config.suite} has a kernel that was judged",
            "`store export jsonl` writes every kernel.",
        )
    place = folder / "optimized_cuda_code"
    place.mkdir()
    kernels = 0
    with open(place / f"{_stem(device)}.json", "w", encoding="utf-8") as handle:
        for of_task in tasks.values():
            best = max(of_task, key=lambda row: (_score(row, "eager"), row["kernel_id"]))
            found = best if _score(best, "eager") > 0 else None
            kernels += found is not None
            line = {
                "level_id": best["level"],
                "task_id": best["problem_id"],
                "ref_code": best["reference"],
                "custom_code": None if found is None else found["code"],
                "cuda_graph_code": None,
                "cudnn_code": None,
            }
            scores = {
                name: None if found is None else _score(found, baseline) or None
                for name, baseline in _SCORES.items()
            }
            handle.write(json.dumps(line | scores) + "\n")
    return {"tasks": len(tasks), "kernels": kernels}


def _score(row: dict[str, Any], baseline: str) -> float:
    """Return a speedup that may be shown; 0 where there is none."""
    if row["quarantined"] or not row["equivalent"] or row["status"] != "correct":
        return 0.0
    return float(dict(row["speedups"] or ()).get(baseline) or 0.0)


def _stem(device: str) -> str:
    """Return the name of a device's file, as the release has it: h100, 3090."""
    text = device.removeprefix("RTX ").lower()
    return "".join(letter if letter.isalnum() else "_" for letter in text)
