"""The tasks and settings of the grid. They follow from the generator of tasks alone.

A cell is a family and a shape. Every cell has a task for each of six operations: those of two
operations train, the others test. A setting gives every knob of the task's Triton kernel a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Literal, TypeAlias

from store import ids
from store.generated.writing.families import generate_tasks
from store.generated.writing.texts import Task

Split: TypeAlias = Literal["train", "test"]
Setting: TypeAlias = Mapping[str, int]

SEED = 0
"""Seed of the generator."""
OPERATIONS: dict[str, Split] = {
    # Without constants, the prompts of an operation are the same at all shapes but for the settings
    # and scores that they show.
    "square": "train",
    "absolute value": "train",
    "ReLU": "test",
    "scale": "test",
    "cut": "test",
    "leaky ReLU": "test",
}
"""Operations that eager computes by one kernel, so that it takes the same time for all of them."""
KNOBS: dict[str, dict[str, tuple[int, ...]]] = {
    "tuned_rows": {"BLOCK_R": (1, 2, 4, 16), "BLOCK_C": (32, 128, 512), "WARPS": (1, 4, 8)},
    "tuned_columns": {
        "BLOCK_C": (8, 32, 128),
        "BLOCK_R": (1, 4, 16),
        "SPLITS": (1, 64, 256),
        "WARPS": (1, 4),
    },
}
"""Values of every knob, by family: all settings of rows, and 54 of the 180 of columns."""
SHAPES = {"tuned_rows": 5, "tuned_columns": 4}
THIRDS = 3
_KNOB = re.compile(r"^(?P<name>[A-Z_]+) = \d+", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class GridTask:
    """One task of the grid."""

    family: str
    shape: str
    """Sizes on a GPU, such as "128 x 65536"."""
    operation: str
    task: Task

    @property
    def split(self) -> Split:
        """The split of its operation."""
        return OPERATIONS[self.operation]

    @property
    def code(self) -> str:
        """Text of the task as the store keeps it."""
        return ids.normalize(self.task.code)

    @property
    def task_id(self) -> str:
        """Id of the task in a lake."""
        return ids.task_id(self.code)

    @property
    def axes(self) -> str:
        """Axes of the workload for a GPU."""
        return json.dumps(self.task.cuda, sort_keys=True)

    def write_kernel(self, setting: Setting) -> str:
        """Return the text of the task's Triton kernel with a setting."""
        plain = next(kernel for kernel in self.task.kernels if kernel.language == "triton")
        return _KNOB.sub(lambda knob: f"{knob['name']} = {setting[knob['name']]}", plain.code)


def list_settings(family: str) -> list[Setting]:
    """Return all settings of the grid for a family, in a fixed order.

    >>> len(list_settings("tuned_rows")), len(list_settings("tuned_columns"))
    (36, 54)
    """
    knobs = KNOBS[family]
    return [dict(zip(knobs, values, strict=True)) for values in product(*knobs.values())]


def name_setting(setting: Setting) -> str:
    """Return a setting as the queries name it.

    >>> name_setting({"BLOCK_R": 1, "WARPS": 4})
    'BLOCK_R=1 WARPS=4'
    """
    return " ".join(f"{name}={value}" for name, value in setting.items())


def read_name(name: str) -> dict[str, int]:
    """Return the setting that has a name.

    >>> read_name("BLOCK_R=1 WARPS=4")
    {'BLOCK_R': 1, 'WARPS': 4}
    """
    parts = (part.partition("=") for part in name.split())
    return {knob: int(value) for knob, _, value in parts}


@cache
def list_tasks() -> tuple[GridTask, ...]:
    """Return the 54 tasks: for each family, shape and operation the first one that is drawn."""
    found: dict[tuple[str, str, str], GridTask] = {}
    for family, shapes in SHAPES.items():
        wanted = len(found) + shapes * len(OPERATIONS)
        for _, task in generate_tasks((family,), SEED, steps=1):
            operation = task.title.partition(": ")[2].removesuffix(", sum")
            shape = f"{task.cuda['ROWS']} x {task.cuda['COLS']}"
            if operation in OPERATIONS:
                found.setdefault(
                    (family, shape, operation),
                    GridTask(family=family, shape=shape, operation=operation, task=task),
                )
            if len(found) == wanted:
                break
    return tuple(found[key] for key in sorted(found))


@cache
def list_third(third: int) -> frozenset[str]:
    """Return the ids of the tasks of every third shape of each family, from 0, 1 or 2 on."""
    shapes: dict[str, list[str]] = {family: [] for family in SHAPES}
    for task in list_tasks():
        if task.shape not in shapes[task.family]:
            shapes[task.family].append(task.shape)
    return frozenset(
        task.task_id
        for task in list_tasks()
        if shapes[task.family].index(task.shape) % THIRDS == third
    )


def count_settings(split: Split) -> int:
    """Return the number of kernels of a split: settings of all of its tasks."""
    return sum(len(list_settings(task.family)) for task in list_tasks() if task.split == split)
