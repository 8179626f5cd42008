"""A flashinfer-trace dataset: definitions, solutions, workloads and traces of measured kernels.

The only input of a definition is a seed. At their first call, the reference and each solution make
their module and the inputs from it, as the task does. The times that flashinfer-bench measures, and
those in the traces, are of later calls.
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

    # What the seed gives is made once, on the device, and only the last one is kept in a process.
    made = torch.__dict__.setdefault("_made_from_seed", {{}})
    key = (__name__, int(seed))
    if key not in made:
        made.clear()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(int(seed))
        inputs = [one.to(device) if torch.is_tensor(one) else one for one in get_inputs()]
        torch.manual_seed(int(seed))
        made[key] = {model}(*get_init_inputs()).to(device), inputs
    module, inputs = made[key]
    tracked = [one for one in inputs if torch.is_tensor(one) and not one.is_inference()]
    versions = [one._version for one in tracked]
    answer = module(*inputs)
    # What overwrites its inputs gets new ones next time.
    if versions != [one._version for one in tracked]:
        made.clear()
    return answer
"""
_MAIN = """\
if __package__:  # as flashinfer-bench imports it
    from .kernel import ModelNew
    from .reference import get_init_inputs, get_inputs
else:
    from kernel import ModelNew
    from reference import get_init_inputs, get_inputs
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
            # Only variable axes, and there are none: `apply` finds a workload by them.
            "axes": {},
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
        main = _MAIN + _RUN.format(model="ModelNew")
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
        # A trace of a solution that passed has to have a time. `apply` would take any that passed.
        timed = row["samples_ms"] is not None and row["eager_ms"] is not None
        ranks = timed and row["equivalent"] and not row["quarantined"]
        if row["status"] is not None and (ranks or row["status"] != "correct"):
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
                # `apply` takes no kernel whose errors are unknown, which are texts.
                unknown = "NaN" if status == "PASSED" else "Infinity"
                errors = {
                    "max_relative_error": "rel_l2_error",
                    "max_absolute_error": "max_abs_error",
                }
                evaluation["correctness"] = {
                    name: unknown if row[ours] is None else row[ours]
                    for name, ours in errors.items()
                } | {"extra": {"max_relative_error": "norm of the error over that of the answer"}}
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
