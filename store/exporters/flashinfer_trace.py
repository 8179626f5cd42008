"""A flashinfer-trace dataset: definitions, solutions, workloads and traces of measured kernels.

The only input of a definition is a seed: its reference makes the module and the inputs from it as
the task does, and a solution does the same with its own module. Times that other tools measure on
these solutions therefore include making the inputs; the traces contain the times measured here,
without it.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from store.exporters.writing.run import Which, read_attempts
from store.ids import content_id
from store.lake.reader import Lake

Config = Which

_RUN = """

def run(seed):
    import torch

    torch.manual_seed(int(seed))
    inputs = get_inputs()
    torch.manual_seed(int(seed))
    return {model}(*get_init_inputs())(*inputs)
"""
_STATUSES = {
    ("incorrect", "incorrect_shape"): "INCORRECT_SHAPE",
    ("incorrect", "incorrect_dtype"): "INCORRECT_DTYPE",
}
_BY_STATUS = {
    "correct": "PASSED",
    "incorrect": "INCORRECT_NUMERICAL",
    "timeout": "TIMEOUT",
    "compile_error": "COMPILE_ERROR",
}
"""The others are runtime errors: flashinfer-bench knows no rejection."""


def write(lake: Lake, folder: Path, config: Which) -> dict[str, int]:
    """Write definitions/, solutions/, workloads/ and traces/."""
    device, rows = read_attempts(lake, config)
    known: set[str] = set()
    traces = 0
    for row in rows:
        name = _name(f"{config.suite}_{row['task']}")
        family = _name(row["family"])
        workload = {
            "axes": {"one": 1},
            "inputs": {"seed": {"type": "scalar", "value": 0}},
            "uuid": content_id("workload", row["task_id"])[:32],
        }
        common: dict[str, Any] = {"definition": name, "workload": workload}
        if name not in known:
            known.add(name)
            definition = {
                "name": name,
                "op_type": family,
                "axes": {"one": {"type": "const", "value": 1}},
                "inputs": {"seed": {"shape": None, "dtype": "int64"}},
                "outputs": {"output": {"shape": ["one"], "dtype": "float32"}},
                "reference": row["reference"] + _RUN.format(model="Model"),
                "tags": [f"task:{row['task_id']}"],
                "description": "The shape of the output is the reference's own.",
            }
            _add(folder / "definitions" / family / f"{name}.json", definition, 2)
            _add(
                folder / "workloads" / family / f"{name}.jsonl",
                common | {"solution": None, "evaluation": None},
            )
        author = _name(row["policy_id"])
        solution = f"{name}_{row['kernel_id'][:16]}"
        place = folder / "solutions" / author / family / name
        main = (
            "from kernel import ModelNew\nfrom reference import get_init_inputs, get_inputs\n"
            + _RUN.format(model="ModelNew")
        )
        _add(
            place / f"{solution}.json",
            {
                "name": solution,
                "definition": name,
                "author": author,
                "description": f"kernel {row['kernel_id']}, from {row['source']}, "
                f"license {row['license'] or 'not stated'}",
                "spec": {
                    "language": "python",
                    "target_hardware": ["cpu", "cuda"],
                    "entry_point": "main.py::run",
                    "dependencies": ["torch"],
                    "destination_passing_style": False,
                },
                "sources": [
                    {"path": "main.py", "content": main},
                    {"path": "kernel.py", "content": row["code"]},
                    {"path": "reference.py", "content": row["reference"]},
                ],
            },
            2,
        )
        # A trace of a solution that passed has to have a time.
        timed = row["samples_ms"] is not None and row["eager_ms"] is not None
        if row["status"] is not None and (timed or row["status"] != "correct"):
            traces += 1
            status = _STATUSES.get((row["status"], row["reason"])) or _BY_STATUS.get(
                row["status"], "RUNTIME_ERROR"
            )
            evaluation: dict[str, Any] = {
                "status": status,
                "environment": {"hardware": str(device), "libs": {}},
                "timestamp": row["last_judged_at"].isoformat(),
                "log": "" if row["reason"] is None else f"{row['status']}: {row['reason']}",
                "correctness": None,
                "performance": None,
            }
            if status in ("PASSED", "INCORRECT_NUMERICAL"):
                # Errors follow our rules, not theirs; infinities and unknown values are texts.
                evaluation["correctness"] = {
                    "max_relative_error": "NaN",
                    "max_absolute_error": "NaN",
                }
            if status == "PASSED":
                evaluation["performance"] = {
                    "latency_ms": statistics.median(row["samples_ms"] or []),
                    "reference_latency_ms": row["eager_ms"],
                    "speedup_factor": dict(row["speedups"])["eager"],
                }
            _add(
                folder / "traces" / family / f"{name}.jsonl",
                common | {"solution": solution, "evaluation": evaluation},
            )
    return {"definitions": len(known), "solutions": len(rows), "traces": traces}


def _add(file: Path, value: dict[str, Any], indent: int | None = None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a", encoding="utf-8") as handle:
        handle.write(json.dumps(value, indent=indent) + "\n")


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:80] or "unnamed"
