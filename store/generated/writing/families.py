"""The families by name, and the stream of tasks that a seed gives."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from store.errors import ImportFailed, UnknownName
from store.generated.writing.texts import Draw, Task

_MOST_DRAWS = 1000


def family_names() -> tuple[str, ...]:
    """Return the names of all families, in order."""
    return tuple(sorted(file.stem for file in Path(__file__).parent.parent.glob("[!_]*.py")))


def load_family(name: str) -> ModuleType:
    """Return one family with its SPLIT and `task`; raises UnknownName with the nearest one."""
    known = family_names()
    if name not in known:
        raise UnknownName.among("family", name, known)
    return importlib.import_module(f"store.generated.{name}")


def generate_tasks(
    names: Sequence[str], seed: int, steps: int | None = None
) -> Iterator[tuple[str, Task]]:
    """Yield family and task without end, the families in turn, no text twice.

    What a family gives depends on the seed and its own name alone, not on the other families. With
    `steps`, tasks with another number of elementwise steps are left out.

    Raises:
        UnknownName: there is no such family.
        ImportFailed: a family has no more such tasks.
    """

    def generate_family(name: str) -> Iterator[Task]:
        seen: set[str] = set()
        place = left_out = 0
        while True:
            for attempt in range(_MOST_DRAWS):
                # The same draw gives the same task.
                task: Task = load_family(name).task(Draw("generated", seed, name, place, attempt))
                if task.code not in seen:
                    break
            else:
                raise ImportFailed(
                    f"family {name} has no more tasks after {place}",
                    "Ask for fewer, or more families.",
                )
            seen.add(task.code)
            place += 1
            if steps is None or task.steps == steps:
                left_out = 0
                yield task
            elif task.steps is None or left_out == _MOST_DRAWS:
                raise ImportFailed(
                    f"family {name} has no tasks with --steps {steps}",
                    "Give another number, or only --families whose names begin with tuned_.",
                )
            else:
                left_out += 1

    streams = [(name, generate_family(name)) for name in names]
    while True:
        for name, stream in streams:
            yield name, next(stream)
