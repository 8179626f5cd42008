"""The programs of a search: attempts that continue their parents, with the figures it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.code.python_syntax import parse_python
from store.commandline.members import AuthorOption, DeviceModel
from store.foreign.text_files import Fields, clean
from store.importers.reading.pieces import Import, TaskOrigin
from store.importers.reading.rows import ENTRY_PATH, Attempt, BundleRows

SCORE = "combined_score"
_PATHS = {
    **dict.fromkeys(("python", "triton"), ENTRY_PATH),
    **dict.fromkeys(("cuda", "hip"), "kernel.cu"),
    **dict.fromkeys(("cpp", "c++"), "kernel.cpp"),
}


@dataclass(frozen=True, kw_only=True)
class SearchOrigin(TaskOrigin):
    """Options of an importer of searches."""

    policy: AuthorOption = ""
    """Who wrote the programs."""
    gpu: DeviceModel | None = None
    """GPU of the figures."""


@dataclass(frozen=True, kw_only=True)
class ProgramOrigin(SearchOrigin):
    """Options of an importer of searches whose files state neither task nor entry point."""

    problem: str | None = None
    """Name of the task if the lake does not have it (default: what the source states)."""
    entry_point: str = "ModelNew"
    """Class or function that the programs define."""


@dataclass
class ProgramRows:
    """Adds the programs of one search in order; a parent that has not come before is unknown."""

    reading: Import
    problem: str
    entry_point: str
    _attempts: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a program to the id of its attempt."""

    @property
    def config(self) -> SearchOrigin:
        """The options of the importer."""
        return self.reading.config

    def has(self, program: str) -> bool:
        """Return whether a program has come before."""
        return program in self._attempts

    def add(
        self,
        rows: BundleRows,
        program: str,
        place: Sequence[str],
        *,
        kernel_id: str | None,
        parent: str | None = None,
        problem: str | None = None,
        **columns: Any,
    ) -> Attempt:
        """Add a program, whose parent is the name of another; `columns` are of generations."""
        attempt = rows.add_attempt(
            place,
            policy=self.config.policy,
            task_id=self.reading.task_id,
            problem=problem or self.problem,
            kernel_id=kernel_id,
            parent_generation_id=self._attempts.get(parent or ""),
            **columns,
        )
        self._attempts[program] = attempt.generation_id
        return attempt

    def add_code(
        self, rows: BundleRows, code: str | None, language: str | None = None
    ) -> str | None:
        """Add the kernel of a program and return its id, or None if there is no code."""
        if code is None:
            return None
        path = _PATHS.get((language or "").lower()) or find_path(code)
        return rows.add_code(code, path=path, entry_point=self.entry_point)

    def add_metrics(self, rows: BundleRows, attempt: Attempt, metrics: Fields, quote: str) -> None:
        """Add every number of an object as a claim; its metric is reported_NAME."""
        for name, value in metrics.values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                metric = SCORE if name == SCORE else f"reported_{' '.join(clean(name).split())}"
                figure = metrics.number(name)
                rows.add_claim(attempt, metric[:100], figure, quote, gpu=self.config.gpu)


def find_path(code: str) -> str:
    """Return the path of a kernel whose language is unknown.

    >>> find_path("import torch"), find_path("__global__ void add(float* x) {}")
    ('kernel.py', 'kernel.cu')
    """
    return "kernel.cu" if "__global__" in code and parse_python(code) is None else ENTRY_PATH


def list_parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Return the names of programs so that each follows its parent; circles are cut.

    >>> list_parents_first({"c": "b", "b": "a", "a": None, "d": "d"})
    ['a', 'b', 'c', 'd']
    """
    ordered: list[str] = []
    done: set[str] = set()
    for name in parents:
        chain: list[str] = []
        current: str | None = name
        while current is not None and current in parents and current not in done:
            done.add(current)
            chain.append(current)
            current = parents[current]
        ordered += reversed(chain)
    return ordered
