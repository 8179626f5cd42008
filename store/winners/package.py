"""Writes the winners of a task as a Python package: data, the task's code, kernels and the guard.

The exporter `hub-kernels` adds what Hugging Face's loader asks for, and `evaluators.load_best`
imports the package from a temporary folder.
"""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path

from store import ids
from store.errors import RowsRejected
from store.winners.selection import TaskWinners

FORMAT = 1
RUNTIME = Path(__file__).parent / "runtime"
# The name of a task is foreign text, which could end a docstring: only its function is named.
_INIT = '''"""The winner of {function}, with guards and the task's own code as the fallback."""

from pathlib import Path

from .guard import Winner

{function} = Winner(Path(__file__).parent)
from . import layers as layers
'''
_LAYERS = '''"""The winner as a layer for `kernels.kernelize`: stateless, and for inference."""

from . import {function}

{layer} = {function}.make_layer("{layer}")
'''


def name_function(task: str) -> str:
    """Return the name of a task's function.

    >>> [name_function(one) for one in ("rms_norm_residual", "level1/9", "1_Add", "none")]
    ['rms_norm_residual', 'level1_9', 'task_1_add', 'task_none']
    """
    name = re.sub(r"[^a-z0-9]+", "_", task.lower()).strip("_")[:60].rstrip("_") or "task"
    # Capitalized, it names the layer.
    is_keyword = keyword.iskeyword(name) or keyword.iskeyword(name.capitalize())
    plain = not name[0].isdigit() and not is_keyword and name not in _TAKEN
    return name if plain else f"task_{name}"


_TAKEN = ("layers", "guard")


def name_layer(task: str) -> str:
    """Return the name of a task's layer.

    >>> name_layer("rms_norm_residual")
    'RmsNormResidual'
    """
    return "".join(part.capitalize() for part in name_function(task).split("_"))


def write_package(winners: TaskWinners, folder: Path) -> None:
    """Write the package of a task into an empty folder.

    Raises RowsRejected if a text does not have its id: then it is not what was judged.
    """
    used = {row["kernel_id"] for row in winners.rows}
    kernels = {one: row for one, row in winners.kernels.items() if one in used}
    wrong = [
        kernel_id
        for kernel_id, one in kernels.items()
        if ids.kernel_id(
            {file["path"]: file["code"] for file in (one, *(one["other_files"] or ()))},
            one["path"],
            one["entry_point"],
        )
        != kernel_id
    ]
    if ids.task_id(winners.code) != winners.task_id:
        wrong.append(winners.task_id)
    if wrong:
        raise RowsRejected("winners", "the id is the hash of the text", len(wrong), wrong)
    function, layer = name_function(winners.task), name_layer(winners.task)
    workloads = {row["workload_id"]: row for row in winners.rows}
    numbers = {workload_id: number for number, workload_id in enumerate(workloads)}
    facts = {
        "format": FORMAT,
        "task": winners.task,
        "task_id": winners.task_id,
        "function": function,
        "layer": layer,
        "workloads": [
            {"workload_id": one, "name": row["workload"], "axes": json.loads(row["axes"])}
            for one, row in workloads.items()
        ],
        "kernels": {
            kernel_id: {
                "path": one["path"],
                "entry_point": one["entry_point"],
                "other_paths": [other["path"] for other in one["other_files"] or ()],
            }
            for kernel_id, one in kernels.items()
        },
        "winners": [
            {
                "kernel_id": row["kernel_id"],
                "workload": numbers[row["workload_id"]],
                **{name: row[name] for name in ("device", "kind")},
                "models": winners.models[row["device"]],
                **{name: row[name] for name in ("clock", "speedup", "speedup_low", "speedup_high")},
            }
            for row in winners.rows
        ],
    }
    files = {
        "__init__.py": _INIT.format(function=function),
        "layers.py": _LAYERS.format(function=function, layer=layer),
        "guard.py": (RUNTIME / "guard.py").read_text("utf-8"),
        "winners.json": json.dumps(facts, indent=1) + "\n",
        "reference.py": winners.code,
    }
    for kernel_id, one in kernels.items():
        for file in (one, *(one["other_files"] or ())):
            files[f"kernels/{kernel_id}/{file['path']}"] = str(file["code"])
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
